/* plica-server: runs compiled models on a machine that has no Python.

     cc -O2 -static -o plica-server server.c
     ./plica-server [--port 9190] [--seconds 60] [--runner PROGRAM]

   It listens on the loopback address alone: whoever reaches it runs code here.  Another machine comes by a tunnel
   (ssh -L, or TLS by stunnel).  Each connection has a process and a folder of its own; each run of a model is a
   process again, so that one which crashes or takes too long ends neither.  `--runner` is a program that runs
   models in its turn, such as QEMU.

   All numbers are 64 bits, low byte first.  The server begins with "plicasrv", its version (1) and 16 bytes that
   name the machine.  A request is a kind, a size, and so many bytes; an answer is a status, a size, and bytes.
     1  a program                                 the answer is its number
     2  a number, repeats, then the inputs        the answer is what the program writes
   A status: 0, 1 no such thing, 2 no memory or disk, 3 the program died (of which signal), 4 it took too long,
   5 it could not be started, or wrote nothing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DONE, UNKNOWN, NO_MEMORY, DIED, TOO_LONG, NOT_STARTED };
static const uint64_t LARGEST = (uint64_t)1 << 32;
static unsigned seconds = 60;
static const char *runner;

static int all(int file, void *data, uint64_t size, int out)
{
    char *at = data;
    while (size) {
        ssize_t moved = out ? write(file, at, size) : read(file, at, size);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return 0;
        at += moved;
        size -= (uint64_t)moved;
    }
    return 1;
}

static uint64_t number(const unsigned char *of)
{
    uint64_t found = 0;
    for (int i = 7; i >= 0; i--)
        found = found << 8 | of[i];
    return found;
}

static void put(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static int answer(int peer, uint64_t status, uint64_t size, void *data)
{
    unsigned char head[16];
    put(head, status);
    put(head + 8, size);
    return all(peer, head, 16, 1) && all(peer, data, size, 1);
}

static int told(int peer, uint64_t status, uint64_t value)
{
    unsigned char said[8];
    put(said, value);
    return answer(peer, status, 8, said);
}

static int written(const char *name, void *data, uint64_t size, int mode)
{
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, mode);
    int well = file >= 0 && all(file, data, size, 1);
    return file >= 0 && close(file) == 0 && well;
}

static int run(int peer, unsigned char *data, uint64_t size, uint64_t programs)
{
    char name[32], times[24];
    struct stat found;
    int status, file;
    if (size < 16 || number(data) >= programs)
        return told(peer, UNKNOWN, 0);
    snprintf(name, sizeof name, "./program%llu", (unsigned long long)number(data));
    snprintf(times, sizeof times, "%llu", (unsigned long long)number(data + 8));
    unlink("outputs.bin");
    if (!written("inputs.bin", data + 16, size - 16, 0600))
        return told(peer, NO_MEMORY, 0);
    pid_t child = fork();
    if (child < 0)
        return told(peer, NO_MEMORY, 0);
    if (!child) {
        close(peer);
        alarm(seconds);
        if (runner)
            execlp(runner, runner, name, times, (char *)0);
        else
            execl(name, name, times, (char *)0);
        _exit(127);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return told(peer, NOT_STARTED, 0);
    if (WIFSIGNALED(status))
        return told(peer, WTERMSIG(status) == SIGALRM ? TOO_LONG : DIED, WTERMSIG(status));
    file = open("outputs.bin", O_RDONLY);
    if (WEXITSTATUS(status) || file < 0 || fstat(file, &found))
        return told(peer, NOT_STARTED, WEXITSTATUS(status));
    void *made = malloc((size_t)found.st_size + 1);
    int well = made && all(file, made, (uint64_t)found.st_size, 0);
    close(file);
    well = well ? answer(peer, DONE, (uint64_t)found.st_size, made) : told(peer, NO_MEMORY, 0);
    free(made);
    return well;
}

static uint64_t serve(int peer)
{
    unsigned char head[32] = "plicasrv";
    struct utsname here;
    uint64_t programs = 0;
    uname(&here);
    put(head + 8, 1);
    snprintf((char *)head + 16, 16, "%.15s", here.machine);
    int well = all(peer, head, 32, 1);
    while (well && all(peer, head, 16, 0)) {
        uint64_t kind = number(head), size = number(head + 8);
        unsigned char *data = size < LARGEST ? malloc(size + 1) : 0;
        if (!data) { /* what was sent is not read: nothing more is understood */
            told(peer, NO_MEMORY, size);
            break;
        }
        if (!(well = all(peer, data, size, 0))) {
        } else if (kind == 1) {
            char name[32];
            snprintf(name, sizeof name, "program%llu", (unsigned long long)programs);
            well = written(name, data, size, 0700) ? told(peer, DONE, programs++)
                                                   : told(peer, NO_MEMORY, size);
        } else {
            well = kind == 2 ? run(peer, data, size, programs) : told(peer, UNKNOWN, kind);
        }
        free(data);
    }
    return programs;
}

static void connection(int peer)
{
    char folder[] = "/tmp/plica-server-XXXXXX", name[32];
    if (!mkdtemp(folder) || chdir(folder))
        return;
    for (uint64_t left = serve(peer); left; left--) {
        snprintf(name, sizeof name, "program%llu", (unsigned long long)(left - 1));
        unlink(name);
    }
    unlink("inputs.bin");
    unlink("outputs.bin");
    rmdir(folder);
}

int main(int count, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int port = 9190, yes = 1;
    for (int i = 1; i < count; i += 2) {
        if (i + 1 < count && !strcmp(words[i], "--port"))
            port = atoi(words[i + 1]);
        else if (i + 1 < count && !strcmp(words[i], "--seconds"))
            seconds = (unsigned)atoi(words[i + 1]);
        else if (i + 1 < count && !strcmp(words[i], "--runner"))
            runner = words[i + 1];
        else {
            fprintf(stderr, "usage: %s [--port N] [--seconds N] [--runner PROGRAM]\n", words[0]);
            return 2;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    at.sin_port = htons((uint16_t)port);
    if (door < 0 || bind(door, (void *)&at, sizeof at) || listen(door, 8) ||
        getsockname(door, (void *)&at, &size)) {
        perror("plica-server");
        return 1;
    }
    printf("plica://127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        int peer = accept(door, 0, 0);
        while (waitpid(-1, 0, WNOHANG) > 0) {
        }
        if (peer >= 0 && !fork()) {
            close(door);
            connection(peer);
            _exit(0);
        }
        if (peer >= 0)
            close(peer);
    }
}
