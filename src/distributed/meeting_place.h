/* Where the ranks of a run meet when nobody says. */
#ifndef DISTRIBUTED_MEETING_PLACE_H
#define DISTRIBUTED_MEETING_PLACE_H

#include "distributed/distributed.h"

typedef struct yoke_meeting_place {
    char address[300]; /* of the store */
    char run_id[64];
} yoke_meeting_place;

/* An address that was given; the launcher's; otherwise what all ranks of the run, and of no other,
 * can work out for themselves: on one machine a folder of /tmp, on several a port. */
yoke_status yoke_meeting_place_choose(yoke_meeting_place *place,
                                      const yoke_process_group_options *options);

#endif
