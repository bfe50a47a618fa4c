/**
 * Changes a domain's power state and waits until it has changed. A guest is asked, through its agent when that answers, else by
 * the ACPI button. A guest that does not obey ends the operation with `timed_out` and is never forced: to cut the power is a
 * request of its own (`force`).
 */
import { type Domain, DomainShutdown, type Libvirt } from '@virtkeep/node-libvirt';
import { sleep, withTimeout } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { PowerAction, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { parseDomain } from '../../domain-xml/index.ts';
import { probeAgent } from '../../guest/index.ts';
import { powerStateOf } from '../../inventory/index.ts';
import { START_TIMEOUT_MS } from '../../libvirt/call-times.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { patiently } from '../../libvirt/errors.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { currentPower, POLL_MS, untilState } from './until-state.ts';

export interface PowerRequest {
  domainId: string;
  action: PowerAction;
  /** Pull the plug (shutdown, reboot). */
  force: boolean;
  /** How long the guest may take, ms. */
  timeoutMs: number;
}

type Method = 'agent' | 'acpi' | 'forced';

/** An agent that is not there yet is looked for every five seconds. */
const LOOKS_PER_PROBE = 10;
/** How long QEMU itself may take for what does not depend on the guest. */
const OWN_TIMEOUT_MS = 120_000;

interface Rule {
  /** States in which the action makes sense; with `force` also those of `forced`. */
  from: readonly PowerState[];
  forced?: readonly PowerState[];
  to: PowerState;
  /** "it cannot be …" */
  verb: string;
}

const { OFF, SUSPENDED, RUNNING } = PowerState;
const RULES: Partial<Record<PowerAction, Rule>> = {
  [PowerAction.START]: { from: [OFF], to: RUNNING, verb: 'started' },
  [PowerAction.SHUTDOWN]: { from: [RUNNING], forced: [RUNNING, SUSPENDED], to: OFF, verb: 'shut down' },
  [PowerAction.REBOOT]: { from: [RUNNING], to: RUNNING, verb: 'rebooted' },
  [PowerAction.SUSPEND]: { from: [RUNNING], to: SUSPENDED, verb: 'suspended' },
  [PowerAction.RESUME]: { from: [SUSPENDED], to: RUNNING, verb: 'resumed' },
  [PowerAction.RESET]: { from: [RUNNING], to: RUNNING, verb: 'reset' },
};

/**
 * The error of an action that the domain's state refuses, or undefined.
 * @throws VirtkeepError invalid_field for an unknown action
 */
export function powerRefusal(
  domain: { name: string; power: PowerState; template: boolean },
  action: PowerAction,
  force: boolean,
): VirtkeepError | undefined {
  const rule = ruleOf(action);
  const allowed = force ? (rule.forced ?? rule.from) : rule.from;
  if (!allowed.includes(domain.power)) {
    const state = stateWord(domain.power);
    return new VirtkeepError('power_state_conflict', { domain: domain.name, state, action: rule.verb });
  }
  if (action === PowerAction.START && domain.template) {
    return new VirtkeepError('template_not_startable', { domain: domain.name });
  }
  return undefined;
}

const STATE_WORDS: Partial<Record<PowerState, string>> = {
  [OFF]: 'off',
  [SUSPENDED]: 'suspended',
  [RUNNING]: 'running',
};

const stateWord = (state: PowerState) => STATE_WORDS[state] ?? 'in an unknown state';

/** @throws VirtkeepError invalid_field for what is no action */
export function ruleOf(action: PowerAction): Rule {
  const rule = RULES[action];
  if (!rule) throw new VirtkeepError('invalid_field', { field: 'action', reason: 'names no power action' });
  return rule;
}

export type PowerDependencies = Pick<WorkflowDependencies, 'libvirt'>;

/** The workflow. Result: `{"power_state":"running","method":"agent|acpi|forced"}`; no method where there is no choice. */
export function setPower(dependencies: PowerDependencies, request: PowerRequest): Workflow {
  return async context => {
    const domain = dependencies.libvirt().domain(request.domainId);
    try {
      const name = await context.step('check', () => check(domain, request));
      const method = await context.step('act', () =>
        act(dependencies.libvirt(), { domain, name }, request, context),
      );
      const powerState = stateWord(ruleOf(request.action).to);
      if (method === 'acpi')
        context.warn('The guest agent did not answer, so the power button (ACPI) was pressed.');
      context.commit({ $case: 'power', value: { powerState, ...(method && { method }) } });
    } catch (error) {
      throw fromDomain(error, request.domainId, 'power');
    }
  };
}

/** @returns the domain's name */
async function check(domain: Domain, { action, force }: PowerRequest): Promise<string> {
  const [{ state }, xml] = await Promise.all([domain.state(), domain.xml()]);
  const { name, metadata } = parseDomain(xml, domain.uuid);
  const refusal = powerRefusal(
    { name, power: powerStateOf(state), template: metadata.template },
    action,
    force,
  );
  if (refusal) throw refusal;
  return name;
}

async function act(
  libvirt: Libvirt,
  { domain, name }: { domain: Domain; name: string },
  { action, force, timeoutMs }: PowerRequest,
  { signal, progress }: OperationContext,
): Promise<Method | undefined> {
  const { verb, to } = ruleOf(action);
  const say = (text: string) => progress.message(text);
  const bound = (limitMs: number, work: (inner: AbortSignal) => Promise<void>) =>
    withTimeout(`The domain ${name}: being ${verb}`, limitMs, signal, work);
  const own = async (call: () => Promise<void>, method?: Method) => {
    await call();
    await bound(OWN_TIMEOUT_MS, inner => untilState(domain, to, inner));
    return method;
  };
  switch (action) {
    case PowerAction.START:
      return own(() => domain.create(0, { timeoutMs: START_TIMEOUT_MS }));
    case PowerAction.SUSPEND:
      return own(() => domain.suspend());
    case PowerAction.RESUME:
      return own(() => domain.resume());
    case PowerAction.RESET:
      return own(() => domain.reset(), 'forced');
    case PowerAction.SHUTDOWN: {
      if (force) return own(() => domain.destroy(), 'forced');
      let method = await ask(domain, 'shutdown', say);
      await bound(timeoutMs, async inner => {
        method = await untilOff(domain, method, say, inner);
      });
      return method;
    }
    case PowerAction.REBOOT: {
      if (force) return own(() => domain.reset(), 'forced');
      const ready = new AbortController();
      const rebooted = watchReboot(libvirt, domain, AbortSignal.any([signal, ready.signal]));
      try {
        const method = await ask(domain, 'reboot', say);
        await bound(timeoutMs, inner => untilReboot(domain, name, rebooted, inner));
        return method;
      } finally {
        ready.abort();
      }
    }
    default:
      throw ruleOf(action);
  }
}

/** Asks the guest's agent when it answers; when that fails, or there is none, presses the ACPI button. */
async function ask(
  domain: Domain,
  what: 'shutdown' | 'reboot',
  say: (text: string) => void,
): Promise<Method> {
  const agent = await probeAgent(domain);
  if (agent.answers) {
    try {
      await domain[what](DomainShutdown.GUEST_AGENT);
      say('The guest agent was asked.');
      return 'agent';
    } catch {
      // an agent that ends before it answers has obeyed or not: the button does no harm
    }
  }
  try {
    await domain[what](DomainShutdown.ACPI_POWER_BTN);
  } catch (error) {
    // it went off meanwhile: an agent that obeys may end before its answer is on the way
    if ((await currentPower(domain)) !== OFF) throw error;
    return agent.answers ? 'agent' : 'acpi';
  }
  say('The power button was pressed.');
  return 'acpi';
}

/**
 * Waits until the guest is off. A guest that is still starting does not see the power button: its agent is asked as soon as it
 * answers.
 * @param firstMethod the way by which it was asked to shut down
 * @returns the way by which it was asked last
 */
async function untilOff(
  domain: Domain,
  firstMethod: Method,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<Method> {
  let method = firstMethod;
  for (let look = 1; ; look += 1) {
    if ((await patiently(signal, () => currentPower(domain))) === OFF) return method;
    if (method === 'acpi' && look % LOOKS_PER_PROBE === 0 && (await probeAgent(domain)).answers) {
      await domain.shutdown(DomainShutdown.GUEST_AGENT).then(
        () => {
          method = 'agent';
          say('The guest agent was asked.');
        },
        () => {},
      );
    }
    await sleep(POLL_MS, signal);
  }
}

/** Watched from before the call: a reboot is an event only, the state stays the same. */
function watchReboot(libvirt: Libvirt, domain: Domain, signal: AbortSignal): Promise<void> {
  return libvirt
    .waitFor('reboot', ({ uuid }) => uuid === domain.uuid, { signal })
    .then(
      () => {},
      // ended by its signal: nobody waits any more
      () => new Promise<void>(() => {}),
    );
}

async function untilReboot(
  domain: Domain,
  name: string,
  rebooted: Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const off = new AbortController();
  const stopped = untilState(domain, OFF, AbortSignal.any([signal, off.signal])).then(() => {
    throw new VirtkeepError('domain_stopped', { domain: name });
  });
  try {
    await Promise.race([rebooted, stopped]);
  } finally {
    off.abort();
    stopped.catch(() => {});
  }
}
