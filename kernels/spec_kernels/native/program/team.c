/* Whether several threads finish a forward sooner than one, by the time that forwards take.
 *
 * A phase ends when its slowest job does. If another program takes the processor of a thread that owns a job, all
 * threads wait for some milliseconds, a slice of the scheduler, and two threads can be slower than one. The caller
 * notices: it sleeps in the middle of a forward. If this happens in one of eight forwards, a trial compares both, in
 * turns; its result stands for a number of forwards that doubles while trials agree. Without such waits nothing is
 * tried. Bits do not depend on it. */
#include "team.h"

enum { TOGETHER, TRIAL, ALONE };

#define WINDOW 16   /* forwards in which waits are counted, and of a trial */
#define MANY 2      /* waits in a window that start a trial */
#define SHORTEST 64 /* forwards between trials */
#define LONGEST 512

int spec_team_size(int rows) {
    if (rows <= 8) return rows - 1;
    return rows <= 16 ? 8 : rows <= 32 ? 9 : rows <= 64 ? 10 : 11;
}

int spec_team_choose(const spec_team *t, int threads) {
    int alone = t->mode == ALONE || (t->mode == TRIAL && t->seen % 2);
    return alone ? 1 : threads;
}

static void enter(spec_team *t, int mode) {
    t->mode = mode, t->seen = 0, t->delayed = 0;
    t->alone = 0, t->together = 0;
}

static void conclude(spec_team *t) {
    int mode = t->alone < t->together ? ALONE : TOGETHER, longer = t->pause * 2;
    t->pause = mode != t->last || !t->pause ? SHORTEST : longer < LONGEST ? longer : LONGEST;
    t->left = t->pause;
    enter(t, mode);
}

static void begin_trial(spec_team *t) {
    t->last = t->mode;
    enter(t, TRIAL);
}

static void watch(spec_team *t, int waits) {
    t->delayed += waits > 0;
    if (++t->seen < WINDOW) return;
    if (t->delayed >= MANY && !t->left) begin_trial(t);
    t->seen = 0, t->delayed = 0;
}

static void compare(spec_team *t, int team, double seconds) {
    *(team > 1 ? &t->together : &t->alone) += seconds;
    if (++t->seen == WINDOW) conclude(t);
}

void spec_team_record(spec_team *t, int team, double seconds, int waits) {
    if (t->left) t->left--;
    if (t->mode == TRIAL) {
        compare(t, team, seconds);
    } else if (t->mode == TOGETHER) {
        watch(t, waits);
    } else if (!t->left) {
        begin_trial(t);
    }
}
