import { expect, test } from '@jest/globals';
import { type Libvirt, ListDomains } from '@virtkeep/node-libvirt';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { glanceAtAll } from './glance.ts';

test('one question per kind tells of all; what answered to two kinds, or to none, is not known', async () => {
  const { RUNNING, PAUSED, SHUTOFF, PERSISTENT, HAS_SNAPSHOT } = ListDomains;
  const answers: Record<number, string[]> = {
    0: ['runs', 'off', 'moved', 'crashed'],
    [RUNNING]: ['runs', 'moved'],
    [PAUSED]: ['moved', 'new'],
    [SHUTOFF]: ['off'],
    [PERSISTENT]: ['off', 'crashed'],
    [HAS_SNAPSHOT]: ['off'],
  };
  const libvirt = { domains: async (filter = 0) => answers[filter]!.map(uuid => ({ uuid })) };
  const { domains, glances } = await glanceAtAll(libvirt as unknown as Libvirt);
  expect(domains.map(({ uuid }) => uuid)).toEqual(answers[0]);
  expect(Object.fromEntries(glances)).toEqual({
    runs: { power: PowerState.RUNNING, persistent: false, hasStates: false },
    off: { power: PowerState.OFF, persistent: true, hasStates: true },
    moved: { power: undefined, persistent: false, hasStates: false },
    crashed: { power: undefined, persistent: true, hasStates: false },
  });
});
