/**
 * Turns what libvirt and the agents say about a failed command into the product's errors: by the codes of libvirt 9 and 11, which
 * differ, and by what the agent itself says, which is English. libvirt's own words are in the language of its daemon, so they decide
 * only between errors that nearly mean the same. The table in `session.test.ts` has each of them.
 */
import {
  type Domain,
  DomainStateCode,
  ErrorCode,
  isLibvirtError,
  type LibvirtError,
} from '@virtkeep/node-libvirt';
import { hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import { fromLibvirt, isNoDomain } from '../libvirt/errors.ts';

/** The command that failed. */
export interface GuestRequest {
  domain: Domain;
  command: string;
  /** The agent was alive right before, so a missing answer does not mean that it hangs: it may be at it. */
  slow: boolean;
  /** How long an answer would have been waited for, seconds. */
  seconds: number;
  /** From the call to its error; a queue in libvirt is part of it. */
  waitedMs: number;
}

/** What libvirt says in English of an agent that does not answer: that it cannot, and that it did not in time. */
const LOST = /not connected|due to an error|disappeared/i;
const LATE = /not available for now|respond to (?:synchronization|command)/i;
/** libvirt waits so long, ms, for an answer to the guest-sync before each command: an error that comes sooner tells of no silence. */
const SYNC_MS = 5000;
/** Of its time: its clock may differ. */
const NEARLY = 0.9;

const { AGENT_UNRESPONSIVE, AGENT_UNSYNCED, AGENT_COMMAND_TIMEOUT, INTERNAL_ERROR, SYSTEM_ERROR } = ErrorCode;
const SILENT = [AGENT_UNRESPONSIVE, AGENT_UNSYNCED, AGENT_COMMAND_TIMEOUT];
/** What came was no answer, or too long, or its end, or nothing can be sent: libvirt gives the connection up. */
const BROKEN = [INTERNAL_ERROR, SYSTEM_ERROR];

const STATUS_TIMEOUT_S = 5;

/** The name for error texts. */
export const nameOf = (domain: Domain): string => domain.name || domain.uuid;

/** The error as the product's. Asks libvirt for the domain's state when that is what refused the command. */
export async function guestFailure(error: unknown, request: GuestRequest): Promise<VirtkeepError> {
  if (isVirtkeepError(error)) return error;
  if (!isLibvirtError(error)) return otherFailure(error, request);
  if (error.is(ErrorCode.NO_DOMAIN))
    return new VirtkeepError('domain_not_found', { id: request.domain.uuid }, { cause: error });
  if (error.is(ErrorCode.OPERATION_INVALID)) return stateFailure(error, request);
  const failure = answerFailure(error, request);
  if (failure.msgKey !== 'guest_frozen' || !(await isThawed(request.domain))) return failure;
  return new VirtkeepError('guest_command_disabled', failure.params, { cause: error });
}

/**
 * qemu-ga gives the last reason for which it disabled a command. After the first freeze it therefore says of a command that
 * was never enabled that the guest is frozen.
 */
async function isThawed(domain: Domain): Promise<boolean> {
  try {
    const answer = await domain.agentCommand('{"execute":"guest-fsfreeze-status"}', STATUS_TIMEOUT_S);
    return (JSON.parse(answer) as { return?: unknown }).return === 'thawed';
  } catch {
    return false;
  }
}

/**
 * Whether the error tells that nobody in the guest can be asked: there is none, it is off or suspended, or it has no channel. A suspended one may
 * be frozen; what waited for it here would keep it from being resumed.
 */
export const isAbsent = (error: unknown): boolean =>
  hasKey(error, 'domain_not_found', 'guest_off', 'guest_no_channel') || isNoDomain(error);

async function stateFailure(error: LibvirtError, request: GuestRequest): Promise<VirtkeepError> {
  const domain = nameOf(request.domain);
  const { PAUSED, PMSUSPENDED, RUNNING, BLOCKED } = DomainStateCode;
  const state = await request.domain.state().then(
    found => found.state,
    () => DomainStateCode.SHUTOFF,
  );
  // it runs again: the reason for which the command was refused is gone
  if (state === RUNNING || state === BLOCKED)
    return new VirtkeepError('guest_agent_disconnected', { domain }, { cause: error });
  const isPaused = state === PAUSED || state === PMSUSPENDED;
  return new VirtkeepError('guest_off', { domain, state: isPaused ? 'paused' : 'off' }, { cause: error });
}

function answerFailure(error: LibvirtError, request: GuestRequest): VirtkeepError {
  const { command, seconds, slow } = request;
  const domain = nameOf(request.domain);
  const options = { cause: error };
  if (error.is(ErrorCode.ARGUMENT_UNSUPPORTED))
    return new VirtkeepError('guest_no_channel', { domain }, options);
  const text = saidByAgent(error, command);
  if (text !== undefined) return agentsOwn(text, request, error);
  if (BROKEN.some(code => error.is(code)) || isLost(error, request))
    return new VirtkeepError('guest_agent_disconnected', { domain }, options);
  // another call of libvirt (a saved state being made) holds the guest
  if (error.is(ErrorCode.OPERATION_TIMEOUT))
    return new VirtkeepError('guest_agent_busy', { domain, command: 'another operation' }, options);
  const isSilent = SILENT.some(code => error.is(code)) || error.kind === 'timeout';
  if (!isSilent) return otherFailure(error, request);
  return slow
    ? new VirtkeepError('guest_command_timed_out', { domain, command, seconds }, options)
    : new VirtkeepError('guest_agent_silent', { domain, command }, options);
}

/** It has one code with silence, so in a language that is not known here the time decides. */
function isLost(error: LibvirtError, { seconds, waitedMs }: GuestRequest): boolean {
  if (LOST.test(error.message)) return true;
  const isSooner = waitedMs < NEARLY * Math.min(SYNC_MS, seconds * 1000);
  return error.is(AGENT_UNRESPONSIVE) && isSooner && !LATE.test(error.message);
}

/**
 * The agent's answer, out of libvirt's sentence about it: `unable to execute QEMU agent command 'guest-x': text`, in any language
 * and with its quotation marks and colon; or the whole of a sentence of another form.
 */
function saidByAgent(error: LibvirtError, command: string): string | undefined {
  const isAnswer = error.is(ErrorCode.AGENT_COMMAND_FAILED);
  if (!isAnswer && !error.is(INTERNAL_ERROR)) return undefined;
  const { message } = error;
  const at = message.indexOf(command);
  // no sentence about it, but damaged JSON that is shown
  const isNamed = at >= 0 && !message.slice(0, at).includes('{');
  if (!isNamed) return isAnswer ? message : undefined;
  return /^\s*['"’”“»][^:：]*[:：]\s*(.*)$/s.exec(message.slice(at + command.length))?.[1] ?? message;
}

/** What the agent itself answered. */
function agentsOwn(text: string, request: GuestRequest, cause: LibvirtError): VirtkeepError {
  const { command } = request;
  const domain = nameOf(request.domain);
  if (/frozen state/.test(text)) return new VirtkeepError('guest_frozen', { domain, command }, { cause });
  if (/The command \S+ has not been found/.test(text))
    return new VirtkeepError('guest_command_unknown', { domain, command }, { cause });
  if (/Command \S+ has been disabled/.test(text) || /is not allowed/.test(text))
    return new VirtkeepError('guest_command_disabled', { domain, command }, { cause });
  const said = text.replace(/^Guest agent command failed, error was /, '').slice(0, MAX_REASON);
  const reason = said.replaceAll(/[\s\p{Cc}\p{Cf}\p{Cs}]+/gu, ' ').trim();
  return new VirtkeepError('guest_agent_failed', { domain, command, reason }, { cause });
}

/** A guest can send a text of any length. */
const MAX_REASON = 1000;

function otherFailure(error: unknown, request: GuestRequest): VirtkeepError {
  const { command } = request;
  if (isLibvirtError(error)) return fromLibvirt(error, command);
  const reason = String((error as Error)?.message ?? error).slice(0, MAX_REASON);
  const params = { domain: nameOf(request.domain), command, reason };
  return new VirtkeepError('guest_agent_failed', params, { cause: error });
}
