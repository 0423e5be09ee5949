/* CRC32C (Castagnoli, reflected polynomial 0x82f63b78) for the compiled record codec. It uses the processor's CRC instruction if the processor
 * has one, which is checked at import. Otherwise it uses eight tables at once. The instruction is compiled into separate functions, so the module
 * runs on every processor of its architecture.
 *
 * The result of the instruction is available after three cycles, but one instruction can start in each cycle. So a long piece is cut into blocks
 * of three strides, whose CRCs are computed at the same time. CRCs are linear: the CRC of two consecutive pieces is the CRC of the first, moved past
 * as many zero bytes as the second has, xor the CRC of the second. To move a CRC past one stride takes four look-ups in tables made at import. */

#ifndef JESENSKA_CRC32C_H
#define JESENSKA_CRC32C_H

#include <string.h>

#include "crc_tables.h"

static uint32_t jesenska_crc_table[8][256];

static void jesenska_crc_make_tables(void) { jesenska_fill_crc_tables(jesenska_crc_table, 0x82f63b78u); }

static uint32_t jesenska_crc_tables(uint32_t crc, const unsigned char *data, size_t size) {
    return jesenska_crc_by_eight((const uint32_t(*)[256])jesenska_crc_table, crc, data, size);
}

#define JESENSKA_CRC_LONG 2048
#define JESENSKA_CRC_SHORT 256

static uint32_t jesenska_crc_past_long[4][256];
static uint32_t jesenska_crc_past_short[4][256];

static void jesenska_crc_make_past(uint32_t past[4][256], size_t zeros) {
    static const unsigned char none[JESENSKA_CRC_LONG];
    for (int row = 0; row < 4; row++)
        for (uint32_t byte = 0; byte < 256; byte++)
            /* The entry of a byte with several bits is the sum of two entries that are already in the row. */
            past[row][byte] = byte & (byte - 1) ? past[row][byte & (byte - 1)] ^ past[row][byte & (0u - byte)]
                                                : jesenska_crc_tables(byte << (8 * row), none, zeros);
}

static inline uint64_t jesenska_crc_move(const uint32_t past[4][256], uint64_t crc) {
    return past[0][crc & 0xff] ^ past[1][crc >> 8 & 0xff] ^ past[2][crc >> 16 & 0xff] ^ past[3][crc >> 24 & 0xff];
}

/* The body of the function of each architecture, which defines STEP(crc, address) for eight bytes. */
#define JESENSKA_CRC_BLOCKS(stride, past)                                                      \
    while (size >= 3 * (stride)) {                                                             \
        uint64_t second = 0, third = 0;                                                        \
        for (size_t at = 0; at < (stride); at += 8) {                                          \
            STEP(wide, data + at);                                                             \
            STEP(second, data + at + (stride));                                                \
            STEP(third, data + at + 2 * (stride));                                             \
        }                                                                                      \
        wide = jesenska_crc_move(past, jesenska_crc_move(past, wide) ^ second) ^ third;        \
        data += 3 * (stride);                                                                  \
        size -= 3 * (stride);                                                                  \
    }
#define JESENSKA_CRC_WIDE()                                                                    \
    JESENSKA_CRC_BLOCKS(JESENSKA_CRC_LONG, jesenska_crc_past_long)                             \
    JESENSKA_CRC_BLOCKS(JESENSKA_CRC_SHORT, jesenska_crc_past_short)                           \
    while (size >= 8) {                                                                        \
        STEP(wide, data);                                                                      \
        data += 8;                                                                             \
        size -= 8;                                                                             \
    }

typedef uint32_t (*jesenska_crc_function)(uint32_t, const unsigned char *, size_t);
static jesenska_crc_function jesenska_crc_chosen = jesenska_crc_tables;

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t wide = crc;
    uint64_t word;
#define STEP(crc, address) (memcpy(&word, address, 8), crc = _mm_crc32_u64(crc, word))
    JESENSKA_CRC_WIDE()
#undef STEP
    crc = (uint32_t)wide;
    while (size--)
        crc = _mm_crc32_u8(crc, *data++);
    return crc;
}

static int jesenska_crc_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t wide = crc;
    uint64_t word;
#define STEP(crc, address) do { memcpy(&word, address, 8); __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word)); } while (0)
    JESENSKA_CRC_WIDE()
#undef STEP
    crc = (uint32_t)wide;
    while (size--) {
        uint32_t byte = *data++;
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    }
    return crc;
}

#if defined(__APPLE__)
static int jesenska_crc_has_hardware(void) { return 1; } /* every Apple processor of this architecture has it */
#elif defined(__linux__)
#include <sys/auxv.h>
static int jesenska_crc_has_hardware(void) { return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; } /* HWCAP_CRC32 */
#else
static int jesenska_crc_has_hardware(void) { return 0; }
#endif

#else

static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) { return jesenska_crc_tables(crc, data, size); }
static int jesenska_crc_has_hardware(void) { return 0; }

#endif

static void jesenska_crc_prepare(void) {
    jesenska_crc_make_tables();
    jesenska_crc_make_past(jesenska_crc_past_long, JESENSKA_CRC_LONG);
    jesenska_crc_make_past(jesenska_crc_past_short, JESENSKA_CRC_SHORT);
    if (jesenska_crc_has_hardware())
        jesenska_crc_chosen = jesenska_crc_hardware;
}

static uint32_t jesenska_crc32c(const unsigned char *data, size_t size) {
    return ~jesenska_crc_chosen(0xffffffffu, data, size);
}

static uint32_t jesenska_crc32c_by_tables(const unsigned char *data, size_t size) {
    return ~jesenska_crc_tables(0xffffffffu, data, size);
}

#endif
