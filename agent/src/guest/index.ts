/**
 * The guest agents: single commands and programs in a guest, what guests tell of themselves, freeze and thaw.
 *
 * Every command goes through `guestCommand` (session.ts), one at a time per guest, and fails with the product's errors.
 */
export { ensureThawed, probeAgent } from './agent.ts';
export { correctGuestClock } from './clock.ts';
export { runProgram } from './exec.ts';
export { Guests, type GuestsDependencies as GuestsOptions } from './guests.ts';
export { offeredCommands } from './info.ts';
export { isWindows, type OsInfo, osInfo } from './os.ts';
export { ensureResumed } from './resume.ts';
export { guestCommand } from './session.ts';
export { listSshKeys } from './ssh-keys.ts';
