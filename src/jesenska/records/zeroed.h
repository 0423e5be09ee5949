/* Memory full of zeros. A large block comes from the system page by page when it is first written to, in large pages
   where there are such: a table that is looked up at random would wait for the small ones' translations. */
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
