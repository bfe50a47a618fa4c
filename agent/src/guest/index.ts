/**
 * The guest agents: single commands and programs in a guest, what guests tell of themselves, freeze and thaw.
 *
 * Every command goes through `guestCommand` (session.ts), one at a time per guest, and fails with the product's errors.
 */
export { ensureThawed, isFrozen, probeAgent } from './agent.ts';
export { correctGuestClock } from './clock.ts';
export { type ProgramResult, type RunOptions, runProgram } from './exec.ts';
export { readGuestFile, writeGuestFile } from './file-io.ts';
export { Guests, type GuestsOptions } from './guests.ts';
export { offeredCommands } from './info.ts';
export { isWindows, type OsInfo, osInfo } from './os.ts';
export { MAX_OUTPUT_BYTES } from './programs.ts';
export { ensureResumed } from './resume.ts';
export { type CommandOptions, guestCommand } from './session.ts';
export { listSshKeys } from './ssh-keys.ts';
