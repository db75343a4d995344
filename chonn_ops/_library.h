/* For every C source that exports functions; the Python side is _library.py. */
#ifndef CHONN_LIBRARY_H
#define CHONN_LIBRARY_H

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#endif
