/* CRC-32 of zlib and of message sets (reflected polynomial 0xedb88320). It uses the processor's instructions if the processor has them, which is checked at
 * import. Otherwise it uses eight tables at once.
 *
 * x86-64 can multiply polynomials (PCLMULQDQ). A piece of 16 bytes can be folded into a later piece: each half is multiplied by a power of x that depends on
 * the distance, and both products are added to the later piece. The remainder stays the same. So four pieces at a time are folded into the next four, and at
 * the end into one. The tables compute the remainder of these 16 bytes and of the bytes after them. In reflected order a product is one bit too low; the
 * constants correct this (`<< 1`). The 32 bits of a table's CRC are 32 bits higher than in a half of a piece, so the powers are the distance in bits, plus 32
 * and minus 32.
 *
 * 64-bit ARM has an instruction for this polynomial. */

#ifndef JESENSKA_CRC32_H
#define JESENSKA_CRC32_H

#include <string.h>

#include "crc_tables.h"

#define JESENSKA_CRC32_POLYNOMIAL 0xedb88320u

static uint32_t jesenska_crc32_table[8][256];

static uint32_t jesenska_crc32_tables(uint32_t crc, const uint8_t *data, size_t size) {
    return jesenska_crc_by_eight((const uint32_t(*)[256])jesenska_crc32_table, crc, data, size);
}

static uint32_t (*jesenska_crc32_chosen)(uint32_t, const uint8_t *, size_t) = jesenska_crc32_tables;

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <wmmintrin.h>

/* The constants for folding over 64 bytes and over 16 bytes: first for the lower half, then for the upper half. */
static uint64_t jesenska_crc32_over_64[2], jesenska_crc32_over_16[2];

/* Returns x to this power, modulo the polynomial. */
static uint64_t jesenska_crc32_power(int power) {
    uint32_t found = 0x80000000u;
    while (power--)
        found = (found >> 1) ^ (JESENSKA_CRC32_POLYNOMIAL & (0u - (found & 1)));
    return (uint64_t)found << 1;
}

__attribute__((target("pclmul,sse2"))) static inline __m128i jesenska_crc32_fold(__m128i piece, __m128i constants, __m128i next) {
    return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(piece, constants, 0x00), _mm_clmulepi64_si128(piece, constants, 0x11)));
}

__attribute__((target("pclmul,sse2"))) static uint32_t jesenska_crc32_hardware(uint32_t crc, const uint8_t *data, size_t size) {
#define PIECE(index) _mm_loadu_si128((const __m128i *)(data + 16 * (index)))
    if (size < 64)
        return jesenska_crc32_tables(crc, data, size);
    __m128i over = _mm_loadu_si128((const __m128i *)jesenska_crc32_over_64);
    __m128i first = _mm_xor_si128(PIECE(0), _mm_cvtsi32_si128((int)crc)), second = PIECE(1), third = PIECE(2), last = PIECE(3);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        first = jesenska_crc32_fold(first, over, PIECE(0));
        second = jesenska_crc32_fold(second, over, PIECE(1));
        third = jesenska_crc32_fold(third, over, PIECE(2));
        last = jesenska_crc32_fold(last, over, PIECE(3));
    }
    over = _mm_loadu_si128((const __m128i *)jesenska_crc32_over_16);
    last = jesenska_crc32_fold(jesenska_crc32_fold(jesenska_crc32_fold(first, over, second), over, third), over, last);
    for (; size >= 16; data += 16, size -= 16)
        last = jesenska_crc32_fold(last, over, PIECE(0));
#undef PIECE
    uint8_t folded[16];
    _mm_storeu_si128((__m128i *)folded, last);
    return jesenska_crc32_tables(jesenska_crc32_tables(0, folded, 16), data, size);
}

static int jesenska_crc32_has_hardware(void) {
    jesenska_crc32_over_64[0] = jesenska_crc32_power(512 + 32);
    jesenska_crc32_over_64[1] = jesenska_crc32_power(512 - 32);
    jesenska_crc32_over_16[0] = jesenska_crc32_power(128 + 32);
    jesenska_crc32_over_16[1] = jesenska_crc32_power(128 - 32);
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul");
}

#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

static uint32_t jesenska_crc32_hardware(uint32_t crc, const uint8_t *data, size_t size) {
    uint64_t word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    while (size--) {
        uint32_t byte = *data++;
        __asm__(".arch_extension crc\n\tcrc32b %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    }
    return crc;
}

#if defined(__APPLE__)
static int jesenska_crc32_has_hardware(void) { return 1; } /* every Apple processor of this architecture has it */
#elif defined(__linux__)
#include <sys/auxv.h>
static int jesenska_crc32_has_hardware(void) { return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; } /* HWCAP_CRC32 */
#else
static int jesenska_crc32_has_hardware(void) { return 0; }
#endif

#else

static uint32_t jesenska_crc32_hardware(uint32_t crc, const uint8_t *data, size_t size) { return jesenska_crc32_tables(crc, data, size); }
static int jesenska_crc32_has_hardware(void) { return 0; }

#endif

static void jesenska_crc32_prepare(void) {
    jesenska_fill_crc_tables(jesenska_crc32_table, JESENSKA_CRC32_POLYNOMIAL);
    if (jesenska_crc32_has_hardware())
        jesenska_crc32_chosen = jesenska_crc32_hardware;
}

static uint32_t jesenska_crc32(const uint8_t *data, size_t size) { return ~jesenska_crc32_chosen(0xffffffffu, data, size); }

static uint32_t jesenska_crc32_by_tables(const uint8_t *data, size_t size) { return ~jesenska_crc32_tables(0xffffffffu, data, size); }

#endif
