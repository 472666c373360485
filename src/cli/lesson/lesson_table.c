/* SPDX-License-Identifier: Apache-2.0 */
/* The lessons of docs/course as questions. $1 is the JSON of the first command. */
#include "cli/lesson/lesson.h"

/* A run of a second or two that nothing but the commands' other words changes. */
#define SMALL "--model mlp --dataset synthetic:1x28x28 --evaluate-every -1"
#define SLOW "--batch 64 --steps 8 --link 0.05,2000 --evaluate-every -1 --devices 2xcpu"
#define RACE                                                                                       \
    "compare --devices 4xcpu --counts doubling --batch 8 --link 0.3,20 --learn-steps 2 --rounds "  \
    "3 "                                                                                           \
    "--seconds 2"

const lesson_row lesson_table[] = {
    {1,
     "step",
     "What a step does",
     {"train --devices 2xcpu --schedule classic --batch 32 --steps 10 --evaluate-every -1",
      "train --devices 2xcpu --schedule overlap --batch 32 --steps 10 --evaluate-every -1"},
     NULL,
     {"Two devices train resnet20 on 32 images a step. How many times as long as forward is "
      "backward?",
      LESSON_NUMBER, "times", "$1.stage_ms.backward / $1.stage_ms.forward", 0.35, true,
      "Backward of a convolution is two products as large as the one of forward: one gives the "
      "gradient of its inputs, one that of its weights."},
     {"Another schedule, overlap, does the stages in another order. Does it end with the same "
      "bits in all weights?",
      LESSON_YES_NO, NULL, "$1.weights_hash == $2.weights_hash", 0, false,
      "The loss is a mean over the rows of the batch, so the gradient is a sum over devices, which "
      "both schedules add in the same order."}},
    {2,
     "classic",
     "Why classic is slow",
     {"compare --lesson --link 0.3,20 --seconds 15"},
     NULL,
     {"Four devices, links of 0.3 GB/s, a model of 1.09 MB. Order by the time of a step, the "
      "shortest first: python (nn.DataParallel), classic (the same without Python), overlap "
      "(copies behind backward) and ddp. Times that differ by less than a tenth are equal.",
      LESSON_ORDER, "ms of a step",
      "python = $1.contenders[name=dp python].step_ms.median; "
      "classic = $1.contenders[name=dp classic].step_ms.median; "
      "overlap = $1.contenders[name=dp overlap].step_ms.median; "
      "ddp = $1.contenders[name=ddp].step_ms.median",
      0.1, true,
      "In classic everything passes through the root's link, one copy after the other, and only "
      "after backward; python adds its lock. overlap sends the root's weights along a chain, ddp "
      "needs no root at all, and both begin during backward."},
     {"Replicate sends 4 bytes a weight, here of 272,474 weights, to each other device through the "
      "root's link of 0.3 GB/s. How many milliseconds does it take on 8 devices?",
      LESSON_NUMBER, "ms", "7 * 4 * $1.parameters / 0.3e9 * 1e3 + 0.02", 0.05, false,
      "20 us + (N - 1) P / beta: seven copies of 1.09 MB, one after the other. It grows with the "
      "devices, although each of them computes fewer rows."}},
    {3,
     "replicas",
     "Replicas that stay",
     {"train --devices 2xcpu --schedule python --accumulate 4 --batch 32 --steps 6 --link 0.3,20 "
      "--evaluate-every -1",
      "train --devices 2xcpu --schedule classic --accumulate 4 --batch 32 --steps 6 --link 0.3,20 "
      "--evaluate-every -1"},
     NULL,
     {"A step computes its batch as four micro-batches and updates once, on two devices. How often "
      "does nn.DataParallel copy the weights to the second device in this step?",
      LESSON_NUMBER, "copies", "$1.stage_bytes.replicate / (4 * $1.parameters)", 0.05, false,
      "Its replicas live for one forward, so every forward copies all weights. A replica that "
      "stays gets them once, because they change once, in the update."},
     {"You evaluate 100 batches on 4 devices with nn.DataParallel without NCCL, and resnet20's "
      "272,474 weights of 4 bytes. How many megabytes of weights leave the root?",
      LESSON_NUMBER, "MB", "300 * 4 * $1.parameters / 1e6", 0.02, false,
      "Three copies of 1.09 MB in each of 100 forwards. Replicas that stay get three copies in "
      "all, or none if they are not stale."}},
    {4,
     "buckets",
     "Buckets and overlap",
     {"train --bucket-mb 100 " SLOW, "train --bucket-mb 0.25 " SLOW,
      "train --bucket-mb 0.001 " SLOW},
     NULL,
     {"Gradients of 1.09 MB go to the root over a link of 0.05 GB/s with a latency of 2 ms, and "
      "weights come back, as one bucket, four or many (22). Order by the time of a step, the "
      "shortest first: one, four, many.",
      LESSON_ORDER, "ms of a step",
      "one = $1.step_ms.median; four = $2.step_ms.median; many = $3.step_ms.median", 0.05, true,
      "One bucket leaves only when backward is over. Four leave during backward, which hides a "
      "part of their way. Each of 22 pays the latency twice, 88 ms in all, more than backward can "
      "hide."},
     {"Four buckets, of which backward hides 30 ms, or one bucket, of which it hides nothing: at "
      "which latency do both take as long, if each bucket travels twice?",
      LESSON_NUMBER, "ms", "30 / (2 * (4 - 1))", 0.02, false,
      "2 (a + P / b) = 2 (4 a + P / b) - 30 ms, so 6 a = 30 ms. The bandwidth does not matter: "
      "both send P bytes."}},
    {5,
     "ddp",
     "DDP: no root",
     {RACE},
     NULL,
     {"Four devices. In classic the root sends all weights to each other device; in DDP's ring "
      "each rank passes parts on. How many times as many bytes does the root send in classic as a "
      "rank in DDP, in a step?",
      LESSON_NUMBER, "times",
      "$1.contenders[name=dp classic,devices=4].parts[0].sent_bytes / "
      "$1.contenders[name=ddp,devices=4].parts[0].sent_bytes",
      0.06, false,
      "The root sends (N - 1) P = 3 P, and a few inputs. In the ring each rank sends a quarter of "
      "P three times to sum and three times to distribute: 2 P (N - 1) / N = 1.5 P."},
     {"A model of 1 GB, 100 ranks: how many GB does each rank of the ring send in a step?",
      LESSON_NUMBER, "GB", "2 * 99 / 100", 0.02, false,
      "2 P (N - 1) / N: below 2 P, however many ranks there are. What grows is the number of "
      "steps, each with its latency."}},
    {6,
     "links",
     "What the link does",
     {"simulate rtx3090:resnet50 --devices 8 --link 1000,20000",
      "simulate v100:resnet50 --devices 8 --link 0.3,20",
      "simulate v100:resnet50 --devices 8 --link 0.6,20"},
     NULL,
     {"Eight simulated GPUs, links of 1000 GB/s, but with a latency of 20 ms, as between "
      "continents. Order by the time that the exchange adds to a step, the shortest first: classic "
      "(the root copies to each), ring and tree.",
      LESSON_ORDER, "ms of the links that computing does not hide",
      "classic = $1.runs[mode=dp-classic].communicate_ms + $1.runs[mode=dp-classic].wait_ms; "
      "ring = $1.runs[mode=ddp-ring].communicate_ms + $1.runs[mode=ddp-ring].wait_ms; "
      "tree = $1.runs[mode=ddp-tree].communicate_ms + $1.runs[mode=ddp-tree].wait_ms",
      0.02, false,
      "Where only the latency counts, the number of hops decides: classic's five large transfers "
      "pay "
      "it once each, a tree of 8 pays 3 times up and 3 times down, a ring 14 times. And buckets "
      "pay "
      "it each."},
     {"A link of 12.3 GB/s with a latency of 5 us (PCIe 3): from which size on does a transfer "
      "take "
      "nine tenths of its time for bytes?",
      LESSON_NUMBER, "kB", "9 * 5e-6 * 12.3e9 / 1e3", 0.03, false,
      "n / b = 9 a. Smaller buckets waste bandwidth, much larger ones gain little."}},
    {7,
     "unequal",
     "Unequal devices",
     {"simulate v100:resnet50 --devices 2 --spread 0 --link nvlink4 --mode dp-overlap",
      "simulate v100:resnet50 --devices 2 --spread 0 --link nvlink4 --mode dp-overlap "
      "--straggler 1:3"},
     NULL,
     {"One of two devices takes three times as long, and both get half of the rows. How many times "
      "as long is a step as with two fast devices?",
      LESSON_NUMBER, "times", "$2.runs[mode=dp-overlap].step_ms / $1.runs[mode=dp-overlap].step_ms",
      0.05, false,
      "Everybody waits for the slowest device: the fast one is idle for two thirds of the step."},
     {"Now the fast one gets three of four rows. How many times as long is a step as with two fast "
      "devices of half the rows each?",
      LESSON_NUMBER, "times", "(3 / 4) / (1 / 2)", 0.02, false,
      "Both are done after 3/4 of the rows at full speed, in place of 1/2: 1.5 times, half of the "
      "3 "
      "times of equal shares."}},
    {8,
     "failure",
     "Failure and going on",
     {"train --devices 3xcpu --threads 1 --shards 8 --steps 20 " SMALL,
      "train --devices 3xcpu --threads 1 --shards 8 --steps 20 --survive --fault "
      "error:0@10 " SMALL},
     NULL,
     {"Device 0 of three, the root, fails after step 10 of 20. The two others go on from the last "
      "kept state, with the same 8 shards of each batch. Do they end with the weights that three "
      "devices would have, bit for bit?",
      LESSON_YES_NO, NULL, "$1.weights_hash == $2.weights_hash", 0, false,
      "Each shard is computed alone and gradients add up in a fixed tree, so it does not matter "
      "which device computes a shard. Steps since the kept state are done again from the same "
      "rows."},
     {"A run keeps its state every 100 steps and a device fails at any moment, all equally likely. "
      "How many steps are done twice on average?",
      LESSON_NUMBER, "steps", "100 / 2", 0.03, false,
      "Between 0 and 100, half of the interval on average: keep more often where failures are "
      "frequent, less often where keeping costs much."}},
    {9,
     "stale",
     "Asynchronous staleness",
     {"train --mode async --devices 3xcpu --threads 1 --steps 120 --batch 12 --lr 0.001 "
      "--straggler 0:3 " SMALL},
     NULL,
     {"Three devices push gradients to a server and wait for nobody; one of them takes three times "
      "as long. How many updates does a push miss on average, between its pull and itself?",
      LESSON_NUMBER, "updates", "mean($1.staleness)", 0.1, false,
      "Each update makes the two gradients that are under way one update older, so the mean is "
      "N - 1 = 2, whatever the speeds. Slow devices only get more of it: theirs are much staler."},
     {"Four devices, one of which takes 5 times as long as each of the others. How many updates "
      "does a push of the slow one miss?",
      LESSON_NUMBER, "updates", "5 * (4 - 1)", 0.1, false,
      "While it computes one gradient, each of the three others pushes five times."}},
    {10,
     "compression",
     "Compression",
     {"simulate v100:resnet50 --devices 8 --mode ddp-ring --link 0.3,20",
      "simulate v100:resnet50 --devices 8 --mode ddp-ring --link 0.6,20",
      "simulate v100:resnet50 --devices 8 --mode ddp-ring --link 450,3",
      "simulate v100:resnet50 --devices 8 --mode ddp-ring --link 900,3"},
     NULL,
     {"Eight GPUs compute for 0.30 s a step; their ring over 0.3 GB/s takes 0.60 s, and most of it "
      "comes after backward: a step takes 0.71 s. Gradients in bfloat16 have half the bytes. How "
      "many times as fast is a step?",
      LESSON_NUMBER, "times", "$1.runs[mode=ddp-ring].step_ms / $2.runs[mode=ddp-ring].step_ms",
      0.08, false,
      "Half the bytes take as long as all of them over twice the bandwidth. The ring is shorter by "
      "0.30 s, the computing stays: less than twice as fast."},
     {"The same over NVLink, 450 GB/s, where no transfer outlasts backward. How many times as fast "
      "is a step with half the bytes?",
      LESSON_NUMBER, "times", "$3.runs[mode=ddp-ring].step_ms / $4.runs[mode=ddp-ring].step_ms",
      0.02, false,
      "There is nothing left to save: the transfers already hide behind backward. Compression pays "
      "only where links take the time, and rounding is its price."}},
    {11,
     "pipelines",
     "Pipelines",
     {NULL},
     NULL,
     {"A model is cut into 4 equal stages on 4 devices, and a batch into 8 micro-batches, which "
      "pass through all stages and back. What share of the step is a device idle?",
      LESSON_NUMBER, "%", "100 * idle(4, 8)", 0.05, false,
      "The last stage starts 3 micro-batches late and the first one ends 3 late: the bubble is "
      "(S - 1) / (M + S - 1). The figure comes from playing the schedule, not from this formula."},
     {"How many micro-batches make the idle share of 4 stages at most a tenth?", LESSON_NUMBER,
      "micro-batches", "least(4, 0.1)", 0.0, false,
      "3 / (M + 3) <= 1 / 10, so M >= 27. But each micro-batch is then smaller, and so are its "
      "products."}},
    {12,
     "memory",
     "Memory: who holds what",
     {"train --devices 2xcpu --batch 64 --steps 2 --evaluate-every -1",
      "train --devices 2xcpu --batch 64 --steps 2 --evaluate-every -1 --activation-checkpointing",
      RACE},
     NULL,
     {"resnet20, 32 rows on each of two devices: weights, gradients and momentum take 3.3 MB of "
      "the "
      "root's 57 MB, activations nearly all the rest. Activation checkpointing keeps few of them "
      "and computes the others again. What share of the 57 MB does the root still need?",
      LESSON_NUMBER, "%", "100 * $2.peak_bytes[0] / $1.peak_bytes[0]", 0.25, false,
      "About the square root of the number of operations is kept, and one range of them is "
      "computed again at a time. The price is a second forward; the weights are the same, bit for "
      "bit."},
     {"Four devices, the optimizer divided among them (sharded, ZeRO's first stage). What share of "
      "the momentum does each hold?",
      LESSON_NUMBER, "%",
      "100 * $3.contenders[name=dp sharded,devices=4].parts[0].memory_bytes.optimizer / "
      "$3.contenders[name=single].parts[0].memory_bytes.optimizer",
      0.03, false,
      "1/N each. In DDP every rank holds all of it, in classic the root alone holds all of it."}},
    {13,
     "idle",
     "Why is my GPU idle?",
     {"train --devices cpu --threads 1 --steps 60 --batch 256 --augment crop-flip-cutout "
      "--color-jitter 0.4,0.4,0.4,0.1 --loader-threads 1 --model mlp:width=64 --dataset "
      "synthetic:3x32x32 --evaluate-every -1"},
     "train --live --devices cpu --threads 1 --steps 600 --batch 256 --augment crop-flip-cutout "
     "--color-jitter 0.4,0.4,0.4,0.1 --loader-threads 1 --model mlp:width=64 --dataset "
     "synthetic:3x32x32 --evaluate-every -1",
     {"A tiny network trains on images that one thread crops, mirrors and recolours, 256 a step. "
      "What share of the step does the device wait for its batch?",
      LESSON_NUMBER, "%", "100 * $1.load_wait_share", 0.25, true,
      "The loader takes several times as long as the device. The live view shows it as waiting for "
      "data: no faster device helps, only more loader threads or less work for each image."},
     {"A thread prepares a batch in 30 ms, while the device computes the one before in 20 ms. What "
      "share of the time is the device idle?",
      LESSON_NUMBER, "%", "100 * (30 - 20) / 30", 0.03, false,
      "A step takes as long as the slower of the two, 30 ms, and the device works for 20 of them. "
      "Two threads would make it the slower one."}},
};

const int lesson_count = (int)(sizeof lesson_table / sizeof *lesson_table);
