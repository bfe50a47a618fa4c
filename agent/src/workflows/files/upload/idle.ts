/** How long an upload has had no byte, by a clock that nobody sets: it goes on over stops of the agent, and stands still over those of the node. */
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';

/** A moment by the node's steady clock. */
export interface Moment {
  /** Of the kernel's run: clocks of different ones have nothing in common. */
  bootId: string;
  /** ms since the kernel began. */
  atMs: number;
}

/** At the moment, so long had no byte come. */
export interface Idle extends Moment {
  idleMs: number;
}

/** Now. @throws Error /proc cannot be read */
export const steadyNow = (): Moment => ({
  bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
  atMs: uptime() * 1000,
});

/** How long no byte has come, ms. The time in which the node was off does not count. */
export function idleMsAt({ bootId, atMs, idleMs }: Idle, now: Moment): number {
  return bootId === now.bootId ? idleMs + Math.max(0, now.atMs - atMs) : idleMs;
}

/** The same, told as of now. */
export const idleAt = (idle: Idle, now: Moment): Idle => ({ ...now, idleMs: idleMsAt(idle, now) });
