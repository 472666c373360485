/* Whether another process of this machine is still there. */
#ifndef DISTRIBUTED_SHM_PEER_H
#define DISTRIBUTED_SHM_PEER_H

#include <stdint.h>

typedef enum shm_life { SHM_RUNNING, SHM_STOPPED, SHM_GONE } shm_life;

shm_life shm_life_of(int pid, uint64_t born); /* born 0: not known */
uint64_t shm_birth_of(int pid);               /* 0: cannot be told */

#endif
