/**
 * Sends commands to guest agents: one at a time per guest, each within its time, failures as the product's errors.
 *
 * libvirt waits for the agent with the command's own time limit; a call that it does not end by then is given up here.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type Domain, DomainStateCode } from '@virtkeep/node-libvirt';
import { abortReason } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseExact } from '@virtkeep/shared/exact-json';
import { KiB } from '@virtkeep/shared/units';
import { guestFailure, nameOf } from './failures.ts';
import { inLine } from './line.ts';

export interface CommandOptions {
  /** Time for the command itself, ms; at least a second counts. Default 5 000. */
  timeoutMs?: number;
  /** Time to wait for other commands of this guest, ms. Default 10 000. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
}

/** A healthy agent takes 5–20 ms; a busy emulated guest some hundred. */
export const ANSWER_TIMEOUT_MS = 5_000;
const WAIT_MS = 10_000;
/** libvirt asks an agent that was silent before for a sign of life first: 5 s; and the call itself takes its time. */
const SLACK_MS = 8_000;

/**
 * A request that does not fit into the socket's buffer at once (212 992 bytes) is never sent to its end by libvirt 9.0: one of
 * 200 KiB takes 0.5 s, one of 270 hangs until its time is over.
 */
export const MAX_REQUEST_BYTES = 128 * KiB;

/** Commands that end when the guest has done something; the others answer from what the agent knows. */
const SLOW = new Set([
  'guest-fstrim',
  'guest-fsfreeze-freeze',
  'guest-fsfreeze-freeze-list',
  'guest-fsfreeze-thaw',
  'guest-set-user-password',
  'guest-set-time',
  'guest-set-vcpus',
  'guest-set-memory-blocks',
  'guest-file-flush',
]);
/** Commands that a silent agent would carry out when it goes on, long after somebody was told that it did not answer. */
const LASTING = new Set(['guest-exec', 'guest-ssh-add-authorized-keys', 'guest-ssh-remove-authorized-keys']);
/** They are told from a hung agent: it is asked for a sign of life before, and one that gave it and does not answer then may be at them. */
const isToldApart = (command: string): boolean => SLOW.has(command) || LASTING.has(command);
/** They end with the guest, or go to sleep with it: there is an answer only when they fail. */
const NO_REPLY = new Set([
  'guest-shutdown',
  'guest-suspend-ram',
  'guest-suspend-disk',
  'guest-suspend-hybrid',
]);
/** How long a failure of theirs may take to be told, ms: a busy guest asks several of its programs whether it can sleep. */
const NO_REPLY_TIMEOUT_MS = 20_000;
/** How often a guest that was sent to sleep is looked at meanwhile, ms. */
const SLEEP_LOOK_MS = 250;

/**
 * Runs one command and returns its value; {} for one that has no answer when it succeeds.
 *
 * An answer of 10 MiB would end the agent's connection until the VM, or the agent in it, starts anew: whoever calls this with a
 * command that may say that much bounds it by its arguments.
 * @throws VirtkeepError guest_off, guest_no_channel, guest_agent_disconnected, guest_agent_silent, guest_agent_busy,
 *   guest_frozen, guest_command_unknown, guest_command_disabled, guest_command_timed_out, guest_agent_failed,
 *   guest_argument_invalid (too long), domain_not_found, libvirt_unreachable, libvirt_failed, canceled
 */
export async function guestCommand(
  domain: Domain,
  command: string,
  args: Record<string, unknown> = {},
  options: CommandOptions = {},
): Promise<unknown> {
  const { timeoutMs = ANSWER_TIMEOUT_MS, waitMs = WAIT_MS, signal } = options;
  const busy = (holder: string) =>
    new VirtkeepError('guest_agent_busy', { domain: nameOf(domain), command: holder });
  const limits = { timeoutMs, signal };
  return inLine({ id: domain.uuid, command, waitMs, signal }, busy, async () => {
    // libvirt takes the mark before its answer for damage and gives the connection up; guest-sync says the same without
    if (command === 'guest-sync-delimited') return send(domain, 'guest-sync', args, limits);
    if (NO_REPLY.has(command)) return unanswered(domain, command, args, limits);
    // a hung agent is told from a slow command, and is given nothing to do later, by asking it something easy first
    if (isToldApart(command)) await send(domain, 'guest-ping', {}, { timeoutMs: ANSWER_TIMEOUT_MS, signal });
    return send(domain, command, args, limits);
  });
}

interface Limits {
  timeoutMs: number;
  signal?: AbortSignal | undefined;
}

async function send(
  domain: Domain,
  command: string,
  args: Record<string, unknown>,
  { timeoutMs, signal }: Limits,
): Promise<unknown> {
  const request = JSON.stringify({ execute: command, arguments: args });
  const seconds = Math.max(1, Math.ceil(timeoutMs / 1000));
  if (Buffer.byteLength(request) > MAX_REQUEST_BYTES) {
    const reason = `is too long: a guest takes ${MAX_REQUEST_BYTES} bytes at a time`;
    throw new VirtkeepError('guest_argument_invalid', { command, field: longest(args), reason });
  }
  const options = { timeoutMs: seconds * 1000 + SLACK_MS, ...(signal ? { signal } : {}) };
  const begun = performance.now();
  try {
    return returnOf(await domain.agentCommand(request, seconds, options));
  } catch (error) {
    if (signal?.aborted) throw abortReason(signal);
    const waitedMs = performance.now() - begun;
    throw await guestFailure(error, { domain, command, slow: isToldApart(command), seconds, waitedMs });
  }
}

/** Name of the argument that takes most of a request. */
function longest(args: Record<string, unknown>): string {
  const length = (name: string) => JSON.stringify(args[name])?.length ?? 0;
  return Object.keys(args).reduce((first, name) => (length(name) > length(first) ? name : first), '');
}

/** libvirt has parsed the answer before, and knows that it is one. Times are in nanoseconds, which no double holds. */
function returnOf(answer: string): unknown {
  return (parseExact(answer) as { return: unknown }).return;
}

/**
 * A command whose success is that nothing comes. The agent is asked for a sign of life before, so silence is consent; so is, and
 * sooner, that the guest sleeps. One that is off ends the call by itself.
 */
async function unanswered(
  domain: Domain,
  command: string,
  args: Record<string, unknown>,
  { timeoutMs, signal }: Limits,
): Promise<unknown> {
  await send(domain, 'guest-ping', {}, { timeoutMs: ANSWER_TIMEOUT_MS, signal });
  const limits = { timeoutMs: Math.min(timeoutMs, NO_REPLY_TIMEOUT_MS), signal };
  const refusal = send(domain, command, args, limits).catch((error: unknown) => {
    if (!GONE_WITH_THE_GUEST.has((error as VirtkeepError).msgKey)) throw error;
  });
  const answered = new AbortController();
  await Promise.race([refusal, asleep(domain, answered.signal)]).finally(() => answered.abort());
  return {};
}

/** Ends when the guest sleeps, or with the signal. */
async function asleep(domain: Domain, signal: AbortSignal): Promise<void> {
  const isAsleep = () =>
    domain.state().then(
      ({ state }) => state === DomainStateCode.PMSUSPENDED,
      // why it cannot be told, the call of the command itself tells
      () => false,
    );
  while (!signal.aborted && !(await isAsleep())) await delay(SLEEP_LOOK_MS);
}

const GONE_WITH_THE_GUEST = new Set<string>([
  'guest_agent_silent',
  'guest_agent_disconnected',
  'guest_off',
  'domain_not_found',
]);
