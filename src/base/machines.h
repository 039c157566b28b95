// Loops compiled for several machines, of which the program takes the best one that it runs on.
#pragma once

#define OPDIFF_FOR_EACH_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
