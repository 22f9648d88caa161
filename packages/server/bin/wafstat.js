#!/usr/bin/env -S node --max-semi-space-size=4
// New objects have 4 MB, which stay in the cache of a core. With the 16 MB that Node.js takes by itself, most of what a
// request allocates comes from memory: a fifth more processor time for each (docs/decisions/0012).
import '../dist/main.js';
