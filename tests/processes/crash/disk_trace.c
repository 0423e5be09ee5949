/* Loaded into a broker with LD_PRELOAD: writes down everything that changes files below JESENSKA_TRACE_ROOT, and every send to a client, in the order in
   which they happened, in the file JESENSKA_TRACE_FILE.

   A record is: kind (1 byte), three numbers (8 bytes each), the lengths of two pieces of bytes (4 bytes each), the pieces. All in the machine's order.

     C create   inode 0 0           path                 a file that was not there
     D mkdir    inode 0 0           path
     W write    inode position 0    data
     T truncate inode size 0
     A allocate inode offset size
     B sync begins   inode number 0                      what was written before this is on the disk
     E sync ends     inode number 0                      once this is there
     R rename   0 0 0               old path, new path
     L link     0 0 0               old path, new path
     U unlink   0 0 0               path
     X rmdir    0 0 0               path
     S send     port bytes 0                             to the client at that port
     M map      inode 0 0                                a shared writable mapping: what is written through it is not seen here

   One operation at a time: it is done and written down while a mutex and, for others to stop the process between two operations, a lock on
   JESENSKA_TRACE_FILE.lock are held. Files are told apart by their inode at that moment, descriptors by the name that the system has for them. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1, lock = -1;
static uint64_t syncs;

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("JESENSKA_TRACE_ROOT"), *file = getenv("JESENSKA_TRACE_FILE");
    char name[PATH_MAX + 8];
    if (!where || !file) return;
    snprintf(root, sizeof root, "%s", where);
    root_length = strlen(root);
    snprintf(name, sizeof name, "%s.lock", file);
    trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    lock = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (trace < 0 || lock < 0) abort();
}

static void enter(void) {
    pthread_mutex_lock(&mutex);
    while (flock(lock, LOCK_EX) != 0)
        if (errno != EINTR) abort();
}

static void leave(void) {
    int saved = errno;
    flock(lock, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

static void note(char kind, uint64_t a, uint64_t b, uint64_t c, const void *first, size_t first_length, const void *second, size_t second_length) {
    int saved = errno;
    char head[33];
    uint32_t lengths[2] = {(uint32_t)first_length, (uint32_t)second_length};
    uint64_t numbers[3] = {a, b, c};
    struct iovec pieces[3] = {{head, sizeof head}, {(void *)first, first_length}, {(void *)second, second_length}};
    head[0] = kind;
    memcpy(head + 1, numbers, 24);
    memcpy(head + 25, lengths, 8);
    if (syscall(SYS_writev, trace, pieces, 3) != (long)(sizeof head + first_length + second_length)) abort();
    errno = saved;
}

static void note_path(char kind, uint64_t inode, const char *path) { note(kind, inode, 0, 0, path, strlen(path), NULL, 0); }

static int below(const char *path) { return trace >= 0 && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0); }

/* The inode of a descriptor of a file below the root, else 0. */
static uint64_t inode_of(int fd) {
    char link[64], path[PATH_MAX];
    struct stat status;
    int saved = errno;
    ssize_t length;
    uint64_t inode = 0;
    if (trace < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (below(path) && fstat(fd, &status) == 0) inode = status.st_ino;
    }
    errno = saved;
    return inode;
}

/* The port of the client behind a socket, else 0. */
static uint64_t port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int saved = errno;
    uint64_t port = 0;
    if (trace >= 0 && getpeername(fd, (struct sockaddr *)&address, &length) == 0) {
        if (address.ss_family == AF_INET) port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        if (address.ss_family == AF_INET6) port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    }
    errno = saved;
    return port;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FIND(name) \
    static __typeof__(&name) real; \
    if (!real) real = REAL(name)

/* Files and names. */

static int opened(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    struct stat status;
    int fd, existed;
    if (!below(path) || !(flags & (O_CREAT | O_TRUNC))) return real(path, flags, mode);
    enter();
    existed = stat(path, &status) == 0;
    fd = real(path, flags, mode);
    if (fd >= 0 && fstat(fd, &status) == 0) {
        if (!existed) note_path('C', status.st_ino, path);
        else if (flags & O_TRUNC) note('T', status.st_ino, 0, 0, NULL, 0, NULL, 0);
    }
    leave();
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        mode_t mode = 0; \
        va_list rest; \
        FIND(name); \
        va_start(rest, flags); \
        if (flags & (O_CREAT | O_TMPFILE)) mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return opened(real, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int mkdir(const char *path, mode_t mode) {
    struct stat status;
    int result;
    FIND(mkdir);
    if (!below(path)) return real(path, mode);
    enter();
    result = real(path, mode);
    if (result == 0 && stat(path, &status) == 0) note_path('D', status.st_ino, path);
    leave();
    return result;
}

#define NAME(name, kind) \
    int name(const char *path) { \
        int result; \
        FIND(name); \
        if (!below(path)) return real(path); \
        enter(); \
        result = real(path); \
        if (result == 0) note_path(kind, 0, path); \
        leave(); \
        return result; \
    }
NAME(unlink, 'U')
NAME(rmdir, 'X')

#define TWO_NAMES(name, kind) \
    int name(const char *old, const char *new) { \
        int result; \
        FIND(name); \
        if (!below(old) && !below(new)) return real(old, new); \
        enter(); \
        result = real(old, new); \
        if (result == 0) note(kind, 0, 0, 0, old, strlen(old), new, strlen(new)); \
        leave(); \
        return result; \
    }
TWO_NAMES(rename, 'R')
TWO_NAMES(link, 'L')

/* Content. */

#define PWRITE(name, type) \
    ssize_t name(int fd, const void *data, size_t size, type position) { \
        uint64_t inode = inode_of(fd); \
        ssize_t count; \
        FIND(name); \
        if (!inode) return real(fd, data, size, position); \
        enter(); \
        count = real(fd, data, size, position); \
        if (count > 0) note('W', inode, position, 0, data, count, NULL, 0); \
        leave(); \
        return count; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    uint64_t inode = inode_of(fd), port = inode ? 0 : port_of(fd);
    ssize_t count;
    FIND(write);
    if (!inode && !port) return real(fd, data, size);
    enter();
    count = real(fd, data, size);
    if (count > 0 && inode) note('W', inode, lseek(fd, 0, SEEK_CUR) - count, 0, data, count, NULL, 0);
    if (count > 0 && port) note('S', port, count, 0, NULL, 0, NULL, 0);
    leave();
    return count;
}

static void note_pieces(uint64_t inode, uint64_t position, const struct iovec *pieces, int number, ssize_t count) {
    for (int index = 0; index < number && count > 0; index++) {
        size_t part = pieces[index].iov_len < (size_t)count ? pieces[index].iov_len : (size_t)count;
        note('W', inode, position, 0, pieces[index].iov_base, part, NULL, 0);
        position += part;
        count -= part;
    }
}

ssize_t writev(int fd, const struct iovec *pieces, int number) {
    uint64_t inode = inode_of(fd), port = inode ? 0 : port_of(fd);
    ssize_t count;
    FIND(writev);
    if (!inode && !port) return real(fd, pieces, number);
    enter();
    count = real(fd, pieces, number);
    if (count > 0 && inode) note_pieces(inode, lseek(fd, 0, SEEK_CUR) - count, pieces, number, count);
    if (count > 0 && port) note('S', port, count, 0, NULL, 0, NULL, 0);
    leave();
    return count;
}

#define PWRITEV(name, type) \
    ssize_t name(int fd, const struct iovec *pieces, int number, type position) { \
        uint64_t inode = inode_of(fd); \
        ssize_t count; \
        FIND(name); \
        if (!inode) return real(fd, pieces, number, position); \
        enter(); \
        count = real(fd, pieces, number, position); \
        note_pieces(inode, position, pieces, number, count); \
        leave(); \
        return count; \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define TRUNCATE(name, type) \
    int name(int fd, type size) { \
        uint64_t inode = inode_of(fd); \
        int result; \
        FIND(name); \
        if (!inode) return real(fd, size); \
        enter(); \
        result = real(fd, size); \
        if (result == 0) note('T', inode, size, 0, NULL, 0, NULL, 0); \
        leave(); \
        return result; \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define ALLOCATE(name, type) \
    int name(int fd, type offset, type size) { \
        uint64_t inode = inode_of(fd); \
        int result; \
        FIND(name); \
        if (!inode) return real(fd, offset, size); \
        enter(); \
        result = real(fd, offset, size); \
        if (result == 0) note('A', inode, offset, size, NULL, 0, NULL, 0); \
        leave(); \
        return result; \
    }
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)

#define SYNC(name) \
    int name(int fd) { \
        uint64_t inode = inode_of(fd), number; \
        int result; \
        FIND(name); \
        if (!inode) return real(fd); \
        enter(); \
        number = ((uint64_t)getpid() << 32) + ++syncs; \
        note('B', inode, number, 0, NULL, 0, NULL, 0); \
        leave(); \
        result = real(fd); \
        enter(); \
        if (result == 0) note('E', inode, number, 0, NULL, 0, NULL, 0); \
        leave(); \
        return result; \
    }
SYNC(fsync)
SYNC(fdatasync)

#define MAP(name, type) \
    void *name(void *where, size_t size, int protection, int flags, int fd, type offset) { \
        uint64_t inode = fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE) ? inode_of(fd) : 0; \
        FIND(name); \
        if (inode) { \
            enter(); \
            note('M', inode, 0, 0, NULL, 0, NULL, 0); \
            leave(); \
        } \
        return real(where, size, protection, flags, fd, offset); \
    }
MAP(mmap, off_t)
MAP(mmap64, off64_t)

/* Answers. */

#define SEND(name, parameters, arguments) \
    ssize_t name parameters { \
        uint64_t port = port_of(fd); \
        ssize_t count; \
        FIND(name); \
        if (!port) return real arguments; \
        enter(); \
        count = real arguments; \
        if (count > 0) note('S', port, count, 0, NULL, 0, NULL, 0); \
        leave(); \
        return count; \
    }
SEND(send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags))
SEND(sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
SEND(sendfile64, (int fd, int in, off64_t *offset, size_t size), (fd, in, offset, size))
SEND(sendfile, (int fd, int in, off_t *offset, size_t size), (fd, in, offset, size))
