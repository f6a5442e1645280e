/* plica-server: runs compiled models on a machine that has no Python.

     cc -O2 -static -o plica-server server.c
     ./plica-server [--port 9190] [--seconds 60] [--runner PROGRAM]

   It listens on the loopback address alone: whoever reaches it runs code here.  Another machine comes by a tunnel
   (ssh -L, or TLS by stunnel).  Each connection has a process and a folder of its own; each run of a model is a
   process group again, so that a model which crashes or hangs ends neither.  A model is killed when its time is
   over or its client is gone.  `--runner` is a program that runs models in its turn, such as QEMU.

   All numbers are 64 bits, low byte first.  The server begins with "plicasrv", its version (2), a status (0, or 6
   if it has too many connections already), the seconds a run may take (0: no limit) and 16 bytes that name the
   machine.  A request is a kind, a size, and a given number of bytes; an answer is a status, a size, and bytes.
     1  a program                                 the answer is its number
     2  a number, repeats, then the inputs        the answer is what the program writes
   A status: 0, 1 no such thing, 2 no memory or disk, 3 the program died (of which signal), 4 it took too long,
   5 it could not be started, or wrote nothing.  A request may come at any time, but once it has begun its bytes
   must not pause for longer than STALL_SECONDS. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DONE, UNKNOWN, NO_MEMORY, DIED, TOO_LONG, NOT_STARTED, BUSY };
enum { MAX_CONNECTIONS = 64, STALL_SECONDS = 30, GREETING_BYTES = 48 };
static const uint64_t MAX_REQUEST_BYTES = sizeof(size_t) > 4 ? (uint64_t)1 << 32 : (uint64_t)1 << 30;
static const uint64_t MAX_SKIPPED_BYTES = (uint64_t)1 << 40; /* a larger size is not a request of Plica */
static unsigned seconds = 60;
static sigset_t waiting_mask; /* signals are delivered inside ppoll only */
static volatile sig_atomic_t stopping;
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

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Waits for a process group; kills it when its time is over (TOO_LONG) or the client has left (UNKNOWN). */
static int outcome(pid_t group, int peer, int *status)
{
    double end = now() + seconds;
    int why = DONE;
    for (;;) {
        pid_t ended = waitpid(group, status, WNOHANG);
        if (ended) {
            kill(-group, SIGKILL); /* whatever the program itself has started */
            return ended < 0 ? NOT_STARTED : why;
        }
        double left = end - now();
        if (why == DONE && seconds && left <= 0)
            why = TOO_LONG;
        struct pollfd watched = {.fd = peer, .events = POLLRDHUP};
        struct timespec span = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        if (why == DONE && (ppoll(&watched, 1, seconds ? &span : 0, &waiting_mask) > 0 || stopping))
            why = UNKNOWN;
        if (why != DONE) {
            kill(-group, SIGKILL);
            ppoll(0, 0, &(struct timespec){.tv_nsec = 1000000}, &waiting_mask);
        }
    }
}

static int run(int peer, unsigned char *data, uint64_t size, uint64_t programs)
{
    char name[32], times[24];
    struct stat found;
    int status = 0, file;
    if (size < 16 || number(data) >= programs)
        return told(peer, UNKNOWN, 0);
    snprintf(name, sizeof name, "./program%llu", (unsigned long long)number(data));
    snprintf(times, sizeof times, "%llu", (unsigned long long)number(data + 8));
    unlink("outputs.bin");
    if (!written("inputs.bin", data + 16, size - 16, 0600))
        return told(peer, NO_MEMORY, size);
    pid_t server = getpid(), child = fork();
    if (child < 0)
        return told(peer, NO_MEMORY, 0);
    if (!child) {
        close(peer);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != server)
            _exit(127);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        sigprocmask(SIG_SETMASK, &waiting_mask, 0);
        if (runner)
            execlp(runner, runner, name, times, (char *)0);
        else
            execl(name, name, times, (char *)0);
        _exit(127);
    }
    setpgid(child, child); /* here too: the child may not have come to it yet */
    switch (outcome(child, peer, &status)) {
    case DONE:
        break;
    case TOO_LONG:
        return told(peer, TOO_LONG, seconds);
    case UNKNOWN:
        return 0;
    default:
        return told(peer, NOT_STARTED, 0);
    }
    if (WIFSIGNALED(status))
        return told(peer, DIED, (uint64_t)WTERMSIG(status));
    file = open("outputs.bin", O_RDONLY);
    int opened = file >= 0 && !fstat(file, &found);
    void *made = opened && (uint64_t)found.st_size < MAX_REQUEST_BYTES ? malloc((size_t)found.st_size + 1) : 0;
    int well = made && all(file, made, (uint64_t)found.st_size, 0);
    if (file >= 0)
        close(file);
    if (!opened || WEXITSTATUS(status))
        well = told(peer, NOT_STARTED, (uint64_t)WEXITSTATUS(status));
    else
        well = well ? answer(peer, DONE, (uint64_t)found.st_size, made) : told(peer, NO_MEMORY, (uint64_t)found.st_size);
    free(made);
    return well;
}

static int greet(int peer, uint64_t status)
{
    unsigned char head[GREETING_BYTES] = "plicasrv";
    struct utsname here;
    uname(&here);
    put(head + 8, 2);
    put(head + 16, status);
    put(head + 24, seconds);
    snprintf((char *)head + 32, 16, "%.15s", here.machine);
    return all(peer, head, sizeof head, 1);
}

/* Reads bytes that there is no memory for, so that the answer to them is understood. */
static int skipped(int peer, uint64_t size)
{
    char part[4096];
    for (uint64_t length; size; size -= length) {
        length = size < sizeof part ? size : sizeof part;
        if (!all(peer, part, length, 0))
            return 0;
    }
    return 1;
}

static void serve(int peer)
{
    unsigned char head[16];
    struct timeval stall = {.tv_sec = STALL_SECONDS};
    uint64_t programs = 0;
    int yes = 1, well = greet(peer, DONE);
    setsockopt(peer, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &stall, sizeof stall);
    setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &stall, sizeof stall);
    while (well && !stopping) {
        struct pollfd next = {.fd = peer, .events = POLLIN};
        if (ppoll(&next, 1, 0, &waiting_mask) < 0 && errno == EINTR)
            continue;
        if (!all(peer, head, 16, 0))
            break;
        uint64_t kind = number(head), size = number(head + 8);
        if (size > MAX_SKIPPED_BYTES) {
            told(peer, UNKNOWN, kind);
            break;
        }
        unsigned char *data = size < MAX_REQUEST_BYTES ? malloc((size_t)size + 1) : 0;
        if (!data) {
            well = skipped(peer, size) && told(peer, NO_MEMORY, size);
            continue;
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
}

/* Removes the folder of a connection and the files in it; a model that was just killed may still write there. */
static void discard(const char *folder)
{
    char path[300];
    for (int tries = 0; tries < 50 && rmdir(folder) && errno != ENOENT; tries++) {
        DIR *listed = opendir(folder);
        for (struct dirent *each; listed && (each = readdir(listed));) {
            snprintf(path, sizeof path, "%s/%s", folder, each->d_name);
            unlink(path);
        }
        if (listed)
            closedir(listed);
        if (tries)
            usleep(10000);
    }
}

static struct {
    pid_t process; /* 0: nobody is connected here */
    char folder[32];
} connections[MAX_CONNECTIONS];

static void noted(int signal)
{
    stopping = stopping || signal != SIGCHLD;
}

/* Ends the records of connections that have ended; whether others are left. */
static int reap(int options)
{
    pid_t ended;
    while ((ended = waitpid(-1, 0, options)) > 0)
        for (int i = 0; i < MAX_CONNECTIONS; i++)
            if (connections[i].process == ended) {
                discard(connections[i].folder);
                connections[i].process = 0;
            }
    return ended == 0;
}

static void stop_all(int signal)
{
    for (int i = 0; i < MAX_CONNECTIONS; i++)
        if (connections[i].process)
            kill(connections[i].process, signal);
}

static void admit(int door, int peer)
{
    int place = 0;
    while (place < MAX_CONNECTIONS && connections[place].process)
        place++;
    if (place == MAX_CONNECTIONS) {
        greet(peer, BUSY);
        return;
    }
    char *folder = strcpy(connections[place].folder, "/tmp/plica-server-XXXXXX");
    if (!mkdtemp(folder)) {
        perror("plica-server: /tmp");
        greet(peer, NO_MEMORY);
        return;
    }
    pid_t child = fork();
    if (!child) {
        close(door);
        signal(SIGINT, SIG_IGN); /* Ctrl-C reaches all; the server ends its connections */
        if (!chdir(folder))
            serve(peer);
        discard(folder);
        _exit(0);
    }
    if (child < 0) {
        greet(peer, NO_MEMORY);
        discard(folder);
        return;
    }
    connections[place].process = child;
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [--port N] [--seconds N] [--runner PROGRAM]\n", program);
    return 2;
}

int main(int count, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sigaction act = {.sa_handler = noted};
    socklen_t size = sizeof at;
    sigset_t handled;
    int yes = 1;
    unsigned long port = 9190;
    for (int i = 1; i < count; i += 2) {
        char *end = "";
        if (i + 1 < count && !strcmp(words[i], "--port"))
            port = strtoul(words[i + 1], &end, 10);
        else if (i + 1 < count && !strcmp(words[i], "--seconds"))
            seconds = (unsigned)strtoul(words[i + 1], &end, 10);
        else if (i + 1 < count && !strcmp(words[i], "--runner"))
            runner = words[i + 1];
        else
            return usage(words[0]);
        if (*end || end == words[i + 1] || port > 65535)
            return usage(words[0]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&handled);
    for (int i = 0; i < 3; i++) {
        int each = (int[]){SIGCHLD, SIGINT, SIGTERM}[i];
        sigaddset(&handled, each);
        sigaction(each, &act, 0);
    }
    sigprocmask(SIG_BLOCK, &handled, &waiting_mask);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    at.sin_port = htons((uint16_t)port);
    if (door < 0 || bind(door, (void *)&at, sizeof at) || listen(door, MAX_CONNECTIONS) ||
        getsockname(door, (void *)&at, &size)) {
        perror("plica-server");
        return 1;
    }
    printf("plica://127.0.0.1:%d\n", ntohs(at.sin_port));
    fflush(stdout);
    while (!stopping) {
        struct pollfd next = {.fd = door, .events = POLLIN};
        ppoll(&next, 1, 0, &waiting_mask);
        reap(WNOHANG);
        int peer = accept(door, 0, 0);
        if (peer >= 0) {
            admit(door, peer);
            close(peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            usleep(100000);
        }
    }
    stop_all(SIGTERM); /* each ends its model; one that waits for bytes in the middle is killed */
    for (int tries = 0; tries < 100 && reap(WNOHANG); tries++)
        usleep(10000);
    stop_all(SIGKILL);
    reap(0);
    return 0;
}
