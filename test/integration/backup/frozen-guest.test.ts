// A guest whose agent dies while its file systems are frozen is thawed as soon as the agent is back.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { createLogger } from '@virtkeep/shared/log';
import { ensureThawed } from '../../../agent/src/guest/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { WorkflowLab } from './lab.ts';

let lab: WorkflowLab;
let guest: Guest;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  guest = await lab.world.defineTiny({ dataDisks: [{}, { format: 'raw' }] });
  await (await guest.start()).waitForAgent();
});
afterAll(() => lab?.stop());

const picture = async () => ({
  states: await guest.snapshots(),
  disks: await guest.disks(),
  files: lab.files(0),
});

describe('a frozen guest', () => {
  test('whose agent dies between freeze and thaw of a backup', async () => {
    const before = await picture();
    const again = 'qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run';
    const hook = `#!/bin/sh\n[ "$1" = freeze ] && (sleep 0.1; killall -9 qemu-ga; sleep 4; ${again}) </dev/null >/dev/null 2>&1 &\n`;
    await guest.sh(`printf '${hook}' > /tmp/hook; chmod +x /tmp/hook`);
    // the answer that it has begun comes before
    const anew = `sleep 10; killall qemu-ga; sleep 1; touch /tmp/anew; ${again} -F/tmp/hook`;
    await guest.background('/bin/sh', ['-c', anew]);
    const isAnew = () =>
      guest.sh('test -e /tmp/anew', 10_000).then(
        () => true,
        () => false,
      );
    await waitFor('the agent with the hook', isAnew, 180_000);
    const { manifest } = await lab.backup(guest);
    expect(manifest.states[0].consistency).toMatch(/quiesced|memory/);
    await guest.waitForAgent();
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.sh('echo writable > /mnt/vda/writable; sync');
    expect(await picture()).toEqual(before);
  });

  test('whose agent dies is thawed when the agent is back', async () => {
    const again =
      'qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -f /run/qga2.pid -t /run';
    // a frozen agent runs nothing: the console says when it is to die, and when it is to come back
    await guest.background('/bin/sh', [
      '-c',
      `read die < /dev/ttyS0; killall -9 qemu-ga; read back < /dev/ttyS0; ${again}`,
    ]);
    await lab.world.node.virsh('domfsfreeze', guest.name);
    await guest.typing('die\n', () => guest.waitForNoAgent());
    const domain = lab.libvirt.domain(await guest.uuid());
    const thawed = ensureThawed(domain, AbortSignal.timeout(180_000), createLogger('test', 'error'));
    await guest.typing('back\n', () => thawed);
    await guest.waitForAgent();
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.sh('echo thawed > /mnt/vda/thawed; sync');
  });
});
