// The lab itself: what every other end-to-end test stands on.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Guest } from '../lab/guest.ts';
import { expectNoLeaks, leaksOf } from '../lab/leaks.ts';
import { isRunning } from '../lab/processes.ts';
import { startWorld, type World } from '../lab/world.ts';

describe('a world of two nodes', () => {
  let world: World;
  let guest: Guest;

  beforeAll(async () => {
    world = await startWorld({ nodes: 2 });
    guest = await world.defineTiny({ dataDisks: [{ files: { 'hello.txt': 'hello\n' } }, { format: 'raw' }] });
    await (await guest.start()).waitForAgent();
  });

  afterAll(async () => {
    await world?.stop();
  });

  test('the guest reads its data disks and runs programs', async () => {
    expect(await guest.sh('cat /mnt/vda/hello.txt')).toBe('hello\n');
    expect(await guest.sh('grep -c /mnt/vdb /proc/mounts')).toBe('1\n');
  });

  test('the writer writes and syncs', async () => {
    await guest.background('/bin/writer', ['/mnt/vdb/w']);
    await expect(guest.sh('while [ ! -e /mnt/vdb/w/w2.md5 ]; do sleep 0.1; done; echo ok')).resolves.toBe(
      'ok\n',
    );
  });

  test('each node has its own guests and shares one pool', async () => {
    const [first, second] = world.nodes;
    expect(await second!.virsh('list', '--all', '--name')).toBe('');
    expect(await first!.virsh('pool-uuid', 'shared')).toBe(await second!.virsh('pool-uuid', 'shared'));
    expect(await first!.virsh('pool-uuid', 'fast')).not.toBe(await second!.virsh('pool-uuid', 'fast'));
  });

  test('programs inside a node see the paths of production', async () => {
    const { stdout } = await world.node.runInside(['virsh', '-q', '-c', 'qemu:///system', 'list', '--name']);
    expect(stdout.trim()).toBe(guest.name);
    expect((await world.node.runInside(['hostname'])).stdout.trim()).toBe('node1');
  });

  test('what a world holds is seen as a leak until it is stopped', () => {
    expect(expectNoLeaks).toThrow(/left behind/);
    const leaks = leaksOf(process.pid).join('\n');
    expect(leaks).toMatch(/directory: .*vk-/);
    expect(leaks).toMatch(/process: .*qemu-system/);
    expect(leaks).toMatch(/process: .*libvirtd/);
  });

  test('a guest survives the death of libvirtd', async () => {
    const pid = guest.qemuPid()!;
    await world.node.killLibvirtd();
    expect(isRunning(pid)).toBe(true);
    await world.node.startLibvirtd();
    await guest.waitForAgent(240_000);
    expect(guest.qemuPid()).toBe(pid);
  });
});
