/* Allocates memory that is filled with zeros. The system provides the pages of a large block when they are first written
   to. It provides huge pages if it can: with small pages, random look-ups in a large table would wait for the translation
   of addresses. */
#ifndef JESENSKA_ZEROED_H
#define JESENSKA_ZEROED_H

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#if !defined(MAP_ANONYMOUS) && defined(MAP_ANON)
#define MAP_ANONYMOUS MAP_ANON
#endif

#define JESENSKA_LARGE_BLOCK ((size_t)8 << 20)

static inline void *jesenska_zeroed(size_t size)
{
    void *block;
    if (size < JESENSKA_LARGE_BLOCK)
        return calloc(1, size);
    block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(block, size, MADV_HUGEPAGE);
#endif
    return block;
}

static inline void jesenska_give_back(void *block, size_t size)
{
    if (size < JESENSKA_LARGE_BLOCK)
        free(block);
    else if (block != NULL)
        munmap(block, size);
}

static inline void jesenska_prefetch(const void *place)
{
#if defined(__GNUC__)
    __builtin_prefetch(place, 1);
#else
    (void)place;
#endif
}

#endif
