/* Counts what a process changes in one folder, and stops it at the n-th change: scripts/injector.py preloads this library.

   Every call of libc that changes a file or a name below ``root`` is noted as a line (kind, inode, size, path, other path)
   and counted. At change number ``stop`` the process is killed before it happens, or after half of it, or the call fails.
   What a change removes is linked below ``graves`` first, so that changes which no disk was told to keep can be undone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { NOTED, KILLED, TORN, FAILS, FULL };
enum verdict { GO, HALF, FAIL };

static char root[PATH_MAX], graves[PATH_MAX];
static int mode, notes = -1;
static long stop, changes;
static pid_t armed;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void faults_arm(const char *folder, const char *kept, int noted, int how, long at) {
    strncpy(root, folder, PATH_MAX - 1);
    strncpy(graves, kept, PATH_MAX - 1);
    notes = noted, mode = how, stop = at, changes = 0, armed = getpid();
}

void faults_disarm(void) { armed = 0; }

static int below(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

/* The absolute path of a name, if it is below the root. */
static int named(int folder, const char *name, char *full) {
    char link[64], base[PATH_MAX] = "";
    if (armed != getpid() || !name) return 0;
    if (name[0] != '/') {
        if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, PATH_MAX - 2);
        if (length < 0) return 0;
        base[length] = '/', base[length + 1] = 0;
    }
    if (strlen(base) + strlen(name) >= PATH_MAX) return 0;
    strcat(strcpy(full, base), name);
    return below(full);
}

static int opened(int file, char *full) {
    char link[64];
    if (armed != getpid()) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, full, PATH_MAX - 1);
    if (length < 0) return 0;
    full[length] = 0;
    return below(full);
}

static enum verdict judged(const char *kind, const struct stat *about, const char *path, const char *other, int error) {
    char line[3 * PATH_MAX];
    int saved = errno;
    long number = __sync_add_and_fetch(&changes, 1);
    int length = snprintf(line, sizeof line, "%s\t%lu\t%ld\t%s\t%s\n", kind, about ? (unsigned long)about->st_ino : 0,
                          about ? (long)about->st_size : 0, path, other ? other : "");
    syscall(SYS_write, notes, line, length);
    errno = saved;
    if (mode == FULL && number >= stop && error == ENOSPC) return errno = error, FAIL;
    if (number != stop || mode == NOTED || mode == FULL) return GO;
    if (mode == FAILS) return errno = error, FAIL;
    if (mode == TORN && !strcmp(kind, "write")) return HALF;
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void killed(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Keep what a change removes: graves/NUMBER. */
static void bury(const char *path) {
    char grave[PATH_MAX + 32];
    int saved = errno;
    snprintf(grave, sizeof grave, "%s/%ld", graves, changes + 1);
    syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, grave, 0);
    errno = saved;
}

#define OF_FILE(kind, error, fail)                                              \
    char full[PATH_MAX];                                                        \
    struct stat about;                                                          \
    enum verdict verdict = GO;                                                  \
    if (opened(file, full) && !fstat(file, &about)) verdict = judged(kind, &about, full, NULL, error); \
    if (verdict == FAIL) return fail;

ssize_t write(int file, const void *bytes, size_t size) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(write)(file, bytes, verdict == HALF ? size / 2 : size);
    if (verdict == HALF) killed();
    return done;
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(pwrite)(file, bytes, verdict == HALF ? size / 2 : size, offset);
    if (verdict == HALF) killed();
    return done;
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t offset) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(pwrite64)(file, bytes, verdict == HALF ? size / 2 : size, offset);
    if (verdict == HALF) killed();
    return done;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(writev)(file, parts, verdict == HALF ? count / 2 : count);
    if (verdict == HALF) killed();
    return done;
}

ssize_t sendfile(int file, int from, off_t *offset, size_t size) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(sendfile)(file, from, offset, verdict == HALF ? size / 2 : size);
    if (verdict == HALF) killed();
    return done;
}

ssize_t sendfile64(int file, int from, off64_t *offset, size_t size) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(sendfile64)(file, from, offset, verdict == HALF ? size / 2 : size);
    if (verdict == HALF) killed();
    return done;
}

ssize_t copy_file_range(int from, off64_t *start, int file, off64_t *offset, size_t size, unsigned flags) {
    OF_FILE("write", ENOSPC, -1)
    ssize_t done = REAL(copy_file_range)(from, start, file, offset, verdict == HALF ? size / 2 : size, flags);
    if (verdict == HALF) killed();
    return done;
}

int fsync(int file) {
    OF_FILE("sync", EIO, -1)
    return REAL(fsync)(file);
}

int fdatasync(int file) {
    OF_FILE("sync", EIO, -1)
    return REAL(fdatasync)(file);
}

int ftruncate(int file, off_t size) {
    OF_FILE("resize", ENOSPC, -1)
    return REAL(ftruncate)(file, size);
}

int ftruncate64(int file, off64_t size) {
    OF_FILE("resize", ENOSPC, -1)
    return REAL(ftruncate64)(file, size);
}

int posix_fallocate(int file, off_t offset, off_t size) {
    OF_FILE("resize", ENOSPC, ENOSPC)
    return REAL(posix_fallocate)(file, offset, size);
}

int posix_fallocate64(int file, off64_t offset, off64_t size) {
    OF_FILE("resize", ENOSPC, ENOSPC)
    return REAL(posix_fallocate64)(file, offset, size);
}

int fallocate(int file, int how, off_t offset, off_t size) {
    OF_FILE("resize", ENOSPC, -1)
    return REAL(fallocate)(file, how, offset, size);
}

int fallocate64(int file, int how, off64_t offset, off64_t size) {
    OF_FILE("resize", ENOSPC, -1)
    return REAL(fallocate64)(file, how, offset, size);
}

/* An open that makes a file, or empties one, is a change. */
static enum verdict opening(int folder, const char *name, int flags) {
    char full[PATH_MAX];
    struct stat about;
    if (!(flags & (O_CREAT | O_TRUNC)) || !named(folder, name, full)) return GO;
    int there = !lstat(full, &about);
    if (there && !(flags & O_TRUNC && about.st_size)) return GO;
    return judged(there ? "empty" : "create", there ? &about : NULL, full, NULL, ENOSPC);
}

#define MODE_OF(flags)                                   \
    mode_t bits = 0;                                     \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {             \
        va_list more;                                    \
        va_start(more, flags);                           \
        bits = va_arg(more, mode_t);                     \
        va_end(more);                                    \
    }

int open(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opening(AT_FDCWD, name, flags) == FAIL ? -1 : REAL(open)(name, flags, bits);
}

int open64(const char *name, int flags, ...) {
    MODE_OF(flags)
    return opening(AT_FDCWD, name, flags) == FAIL ? -1 : REAL(open64)(name, flags, bits);
}

int openat(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opening(folder, name, flags) == FAIL ? -1 : REAL(openat)(folder, name, flags, bits);
}

int openat64(int folder, const char *name, int flags, ...) {
    MODE_OF(flags)
    return opening(folder, name, flags) == FAIL ? -1 : REAL(openat64)(folder, name, flags, bits);
}

static enum verdict naming(const char *kind, int folder, const char *name, int other, const char *to, int error) {
    char full[PATH_MAX], target[PATH_MAX] = "";
    struct stat about;
    int inside = named(folder, name, full);
    if (to && named(other, to, target)) inside = 1;
    if (!inside) return GO;
    int there = !lstat(full, &about);
    if (there && !strcmp(kind, "mkdir")) return GO; /* it will fail, and changes nothing */
    if (!there && strcmp(kind, "mkdir") && strcmp(kind, "create")) return GO;
    if (!strcmp(kind, "rename")) bury(target);
    if (!strcmp(kind, "unlink")) bury(full);
    return judged(kind, there ? &about : NULL, full, target, error);
}

int rename(const char *from, const char *to) {
    return naming("rename", AT_FDCWD, from, AT_FDCWD, to, EIO) == FAIL ? -1 : REAL(rename)(from, to);
}

int renameat(int folder, const char *from, int other, const char *to) {
    return naming("rename", folder, from, other, to, EIO) == FAIL ? -1 : REAL(renameat)(folder, from, other, to);
}

int renameat2(int folder, const char *from, int other, const char *to, unsigned flags) {
    return naming("rename", folder, from, other, to, EIO) == FAIL ? -1 : REAL(renameat2)(folder, from, other, to, flags);
}

int link(const char *from, const char *to) {
    return naming("link", AT_FDCWD, from, AT_FDCWD, to, ENOSPC) == FAIL ? -1 : REAL(link)(from, to);
}

int linkat(int folder, const char *from, int other, const char *to, int flags) {
    return naming("link", folder, from, other, to, ENOSPC) == FAIL ? -1 : REAL(linkat)(folder, from, other, to, flags);
}

int symlink(const char *content, const char *name) {
    return naming("create", AT_FDCWD, name, AT_FDCWD, NULL, ENOSPC) == FAIL ? -1 : REAL(symlink)(content, name);
}

int unlink(const char *name) {
    return naming("unlink", AT_FDCWD, name, AT_FDCWD, NULL, EIO) == FAIL ? -1 : REAL(unlink)(name);
}

int unlinkat(int folder, const char *name, int flags) {
    const char *kind = flags & AT_REMOVEDIR ? "rmdir" : "unlink";
    return naming(kind, folder, name, AT_FDCWD, NULL, EIO) == FAIL ? -1 : REAL(unlinkat)(folder, name, flags);
}

int rmdir(const char *name) {
    return naming("rmdir", AT_FDCWD, name, AT_FDCWD, NULL, EIO) == FAIL ? -1 : REAL(rmdir)(name);
}

int mkdir(const char *name, mode_t bits) {
    return naming("mkdir", AT_FDCWD, name, AT_FDCWD, NULL, ENOSPC) == FAIL ? -1 : REAL(mkdir)(name, bits);
}

int mkdirat(int folder, const char *name, mode_t bits) {
    return naming("mkdir", folder, name, AT_FDCWD, NULL, ENOSPC) == FAIL ? -1 : REAL(mkdirat)(folder, name, bits);
}
