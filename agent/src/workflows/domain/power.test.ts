/** What a real guest does seldom: it ends in the midst of being asked. */
import { expect, jest, test } from '@jest/globals';
import { DomainShutdown } from '@virtkeep/node-libvirt';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { OperationContext } from '../context.ts';
import { setPower } from './power.ts';

const [RUNNING, SHUTOFF] = [1, 5];

/** A running domain whose agent answers a ping; it goes off while its agent is asked to do `what`. */
function endsWhenAsked({ answers }: { answers: boolean }) {
  let state = RUNNING;
  const obey = async (method: number) => {
    if (method === DomainShutdown.GUEST_AGENT) {
      state = SHUTOFF;
      throw new Error('guest agent is not connected');
    }
    if (!answers) state = SHUTOFF;
    if (state === SHUTOFF) throw new Error('domain is not running');
  };
  return {
    uuid: 'id',
    name: 'vm',
    state: async () => ({ state }),
    xml: async () => '<domain><name>vm</name><uuid>id</uuid></domain>',
    agentCommand: async () => {
      if (!answers) throw new Error('no agent');
      return '{"return":{}}';
    },
    shutdown: obey,
    reboot: obey,
  };
}

async function ended(domain: ReturnType<typeof endsWhenAsked>, action: PowerAction): Promise<unknown> {
  const commit = jest.fn<OperationContext['commit']>();
  const libvirt = { domain: () => domain, waitFor: () => new Promise(() => {}) };
  const dependencies = { libvirt: () => libvirt } as unknown as Parameters<typeof setPower>[0];
  const context = {
    ...{ commit, warn: () => {}, signal: new AbortController().signal },
    progress: { message: () => {} },
    step: (_name: string, work: () => Promise<unknown>) => work(),
  } as unknown as OperationContext;
  await setPower(dependencies, { domainId: 'id', action, force: false, timeoutMs: 60_000 })(context);
  return commit.mock.calls[0]![0]!.value;
}

test('a guest that is off before its agent has answered was shut down by it', async () => {
  expect(await ended(endsWhenAsked({ answers: true }), PowerAction.SHUTDOWN)).toEqual({
    powerState: 'off',
    method: 'agent',
  });
});

test('a guest that goes off before the button is pressed is off, as was asked', async () => {
  expect(await ended(endsWhenAsked({ answers: false }), PowerAction.SHUTDOWN)).toMatchObject({
    powerState: 'off',
  });
});

test('a guest that goes off instead of rebooting is reported', async () => {
  await expect(ended(endsWhenAsked({ answers: true }), PowerAction.REBOOT)).rejects.toMatchObject({
    msgKey: 'domain_stopped',
  });
});
