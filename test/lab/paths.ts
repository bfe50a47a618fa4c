import { mkdtempSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Root of the source tree. */
export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');

/** Built guests, kernels and downloaded packages; safe to delete at any time. */
export const CACHE = join(ROOT, '.cache');

/**
 * Where test worlds live. Not under /tmp, which is a tmpfs on Debian 13 (no O_DIRECT, little room), and short, because
 * a unix socket's path has at most 107 bytes.
 */
export const WORLDS = '/var/tmp';
const WORLD_PREFIX = 'vk-';

/** How the names of the worlds of a test process begin. */
export function worldPrefix(ownerPid: number): string {
  return `${WORLD_PREFIX}${ownerPid}-`;
}

/** A fresh directory for one test world; its name tells which process must remove it. */
export function makeWorldDir(): string {
  return mkdtempSync(join(WORLDS, worldPrefix(process.pid)));
}

/** Directories of worlds that exist now. */
export function listWorldDirs(): string[] {
  return readdirSync(WORLDS)
    .filter(name => name.startsWith(WORLD_PREFIX))
    .map(name => join(WORLDS, name));
}

/** Where a program begins: its bundle, as it is installed, in a run of all tests; else its source. */
const PROGRAMS = {
  virtkeep: 'controller/cli/src/main.ts',
  'virtkeep-agent': 'agent/src/main.ts',
  'virtkeep-controller': 'controller/src/main.ts',
};

/** The file of a program, for the private Node. */
export function programFile(name: keyof typeof PROGRAMS): string {
  const { VIRTKEEP_BUNDLE } = process.env;
  return VIRTKEEP_BUNDLE === undefined ? join(ROOT, PROGRAMS[name]) : join(VIRTKEEP_BUNDLE, `${name}.mjs`);
}

/** The private Node that everything of the project runs on. */
export const NODE_BIN = process.execPath;
