/* Memory that calls work in, and that choosers hold. A few are kept between calls, for the drafts of as many
 * sequences. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "arguments.h"

#include <stdlib.h>

#define SPARES 16
#define SPARE_PLACES (1 << 18) /* of all spare ones, but for a single one */

static choice_room *spares[SPARES];
static int held;
static int64_t places;

static void room_free(choice_room *room) {
    if (!room) return;
    free(room->order), free(room->z), free(room->adjusted), free(room->weights);
    free(room->ids), free(room->some), free(room->counts), free(room);
}

static choice_room *room_new(int32_t n) {
    choice_room *room = calloc(1, sizeof *room);
    if (!room) return NULL;
    size_t count = (size_t)n + 64; /* loops go to the end of a block */
    room->n = n;
    room->order = malloc(count * sizeof *room->order), room->z = malloc(count * sizeof *room->z);
    room->adjusted = malloc(count * sizeof *room->adjusted), room->weights = malloc(count * sizeof *room->weights);
    room->ids = malloc(count * sizeof *room->ids), room->some = malloc(count * sizeof *room->some);
    room->counts = calloc(count, sizeof *room->counts);
    if (room->order && room->z && room->adjusted && room->weights && room->ids && room->some && room->counts)
        return room;
    room_free(room);
    return NULL;
}

choice_room *room_take(int32_t n) {
    while (held) {
        choice_room *room = spares[--held];
        places -= room->n;
        if (room->n >= n) return room;
        room_free(room);
    }
    choice_room *room = room_new(n < 1024 ? 1024 : n);
    if (!room) PyErr_NoMemory();
    return room;
}

void room_give(choice_room *room) {
    if (held == SPARES || (held && places + room->n > SPARE_PLACES)) {
        room_free(room);
        return;
    }
    places += room->n, spares[held++] = room;
}
