/**
 * One command at a time per guest. libvirt serialises the calls to one agent too, but a call that waits there holds one of
 * the few threads, so that a single slow guest could keep all others from being asked.
 */
import { abortReason } from '@virtkeep/shared/abort';

interface Waiter {
  enter: () => void;
  leave: () => void;
}

interface Line {
  /** The command that the guest works on. */
  command: string;
  waiting: Waiter[];
}

/** More waiting commands of one guest are refused at once. */
const MAX_WAITING = 32;

/** By the domain's uuid; a guest that nobody asks has none. */
const lines = new Map<string, Line>();

/**
 * Runs `work` when the guest is free.
 * @param waitMs how long to wait for that
 * @param busy makes the error of a wait that was too long, from the command that held the guest
 * @throws what `busy` makes, the abort reason, or what `work` throws
 */
export async function inLine<T>(
  guest: { id: string; command: string; waitMs: number; signal?: AbortSignal | undefined },
  busy: (command: string) => Error,
  work: () => Promise<T>,
): Promise<T> {
  await enter(guest, busy);
  const line = lines.get(guest.id)!;
  line.command = guest.command;
  try {
    return await work();
  } finally {
    const next = line.waiting.shift();
    if (next) next.enter();
    else lines.delete(guest.id);
  }
}

async function enter(
  guest: { id: string; command: string; waitMs: number; signal?: AbortSignal | undefined },
  busy: (command: string) => Error,
): Promise<void> {
  const { id, command, waitMs, signal } = guest;
  if (signal?.aborted) throw abortReason(signal);
  const line = lines.get(id);
  if (!line) {
    lines.set(id, { command, waiting: [] });
    return;
  }
  if (line.waiting.length >= MAX_WAITING) throw busy(line.command);
  await new Promise<void>((resolve, reject) => {
    const settle = (then: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
      then();
    };
    const waiter = {
      enter: () => settle(resolve),
      leave: () => line.waiting.splice(line.waiting.indexOf(waiter), 1),
    };
    const giveUp = (error: Error) => {
      waiter.leave();
      settle(() => reject(error));
    };
    const onAbort = () => giveUp(abortReason(signal!));
    const timer = setTimeout(() => giveUp(busy(line.command)), waitMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    line.waiting.push(waiter);
  });
}
