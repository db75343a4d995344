/* The words of numbers.h, which mean another type of number next time. */
#undef vec
#undef loose
#undef HALVES
#undef doubles
#undef loose_doubles
#undef half
#undef wide
#undef widen
#undef mask
#undef LANES
#undef PARTS
#undef COMPLEX
