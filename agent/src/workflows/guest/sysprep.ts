/**
 * Prepares a running Windows for being copied, by its own Sysprep (specification 4.6). Sysprep itself is asked to quit: so its
 * outcome can be read and the answer file is gone before the guest stops; what the caller chose is done afterwards.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { withTimeout } from '@virtkeep/shared/abort';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { isWindows } from '../../guest/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import { untilState } from '../domain/until-state.ts';
import { changing } from './change.ts';
import { type GuestOperations, inDomain, requireRunning } from './domain.ts';
import { type Guest, operationFailed } from './guest.ts';
import { powershell, runScript, SYSPREP } from './windows.ts';

export const SYSPREP_MODES = ['oobe', 'audit'] as const;
export const SYSPREP_ACTIONS = ['shutdown', 'reboot', 'quit'] as const;

export interface SysprepRequest {
  domainId: string;
  mode: (typeof SYSPREP_MODES)[number];
  action: (typeof SYSPREP_ACTIONS)[number];
  generalize: boolean;
  vmMode: boolean;
  /** Text of an answer file; empty: none. */
  unattend: string;
}

/** An answer file is some ten KiB; more does not go through the agent in one piece. */
export const MAX_UNATTEND_BYTES = 512 * 1024;

const OPERATION = 'Sysprep';
const TIMEOUT_MS = 3_600_000;
const OFF_TIMEOUT_MS = 900_000;

/** The switches of sysprep.exe. @throws VirtkeepError invalid_field */
export function sysprepSwitches({
  mode,
  generalize,
  vmMode,
}: Pick<SysprepRequest, 'mode' | 'generalize' | 'vmMode'>): string {
  if (vmMode && !(generalize && mode === 'oobe'))
    throw new VirtkeepError('invalid_field', {
      field: 'vm_mode',
      reason: 'goes with generalize and the mode oobe only',
    });
  return [
    ...(generalize ? ['/generalize'] : []),
    `/${mode}`,
    '/quit',
    '/quiet',
    ...(vmMode ? ['/mode:vm'] : []),
  ].join(' ');
}

/** The workflow. Result: `{"action"}`. */
export function sysprep(operations: GuestOperations, request: SysprepRequest): Workflow {
  const switches = sysprepSwitches(request);
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const guest = await context.step('check', async () => {
        const running = await requireRunning(operations, domain, context.signal);
        const { id, prettyName, name } = await running.guest.osInfo();
        if (!isWindows({ id: id ?? '' }))
          throw new VirtkeepError('guest_os_unsupported', {
            domain: running.guest.name,
            os: prettyName ?? name ?? id ?? 'unknown',
            operation: OPERATION,
          });
        return running.guest;
      });
      await context.step('sysprep', async () => {
        const unattend = Buffer.from(request.unattend, 'utf8').toString('base64');
        const answer = await runScript(
          changing(context, guest, 'run Sysprep'),
          OPERATION,
          powershell(SYSPREP, { switches, unattend }, TIMEOUT_MS),
        );
        requireDone(guest, request, answer);
      });
      await context.step('end', () => end(domain, guest, request.action, context));
      context.commit({ $case: 'sysprep', value: { action: request.action } });
    });
}

/** A generalized Windows says so; without that only the exit code tells. */
function requireDone(
  guest: Guest,
  { generalize }: SysprepRequest,
  { code, state }: Record<string, unknown>,
): void {
  const log = 'its log is C:\\Windows\\System32\\Sysprep\\Panther\\setuperr.log';
  if (code !== 0) throw operationFailed(guest, OPERATION, `exit code ${String(code)}; ${log}`);
  if (generalize && !/^IMAGE_STATE_GENERALIZE_RESEAL_TO_/.test(String(state)))
    throw operationFailed(guest, OPERATION, `Windows is in the state ${String(state)} afterwards; ${log}`);
}

async function end(
  domain: Domain,
  guest: Guest,
  action: SysprepRequest['action'],
  context: OperationContext,
): Promise<void> {
  if (action === 'quit') return;
  await guest.command('guest-shutdown', { mode: action === 'reboot' ? 'reboot' : 'powerdown' });
  if (action === 'reboot') return;
  try {
    await withTimeout(`The shutdown of ${guest.name}`, OFF_TIMEOUT_MS, context.signal, inner =>
      untilState(domain, PowerState.OFF, inner),
    );
  } catch (error) {
    if (!hasKey(error, 'timed_out')) throw error;
    context.warn(`The guest was prepared and asked to shut down, but still runs: ${reasonOf(error)}`);
  }
}
