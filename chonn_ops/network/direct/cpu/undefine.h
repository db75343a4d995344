/* The words of numbers.h, which mean another type of number next time. */
#undef vec
#undef loose
#undef mask
#undef LANES
#undef PARTS
#undef COMPLEX
