/** Every command of the agent in a Debian guest: called over REST, and its effect looked for by another way. */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { expect } from '@jest/globals';
import { run as runHere, waitFor } from '../../lab/run.ts';
import { base64, type GuestRestLab, type Json, MAC } from './rest-lab.ts';

export const SECRET = 'S3cr3t-of-a-real-guest';
export const KEY = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@home';

/** The commands of the specification, 4.4. */
export const LISTED =
  `guest-ssh-remove-authorized-keys, guest-ssh-add-authorized-keys, guest-ssh-get-authorized-keys,
  guest-get-devices, guest-get-osinfo, guest-get-timezone, guest-get-users, guest-get-host-name, guest-exec,
  guest-exec-status, guest-get-memory-block-info, guest-set-memory-blocks, guest-get-memory-blocks,
  guest-set-user-password, guest-get-fsinfo, guest-get-disks, guest-set-vcpus, guest-get-vcpus,
  guest-network-get-interfaces, guest-suspend-hybrid, guest-suspend-ram, guest-suspend-disk, guest-fstrim,
  guest-fsfreeze-thaw, guest-fsfreeze-freeze-list, guest-fsfreeze-freeze, guest-fsfreeze-status, guest-file-flush,
  guest-file-seek, guest-file-write, guest-file-read, guest-file-close, guest-file-open, guest-shutdown, guest-info,
  guest-set-time, guest-get-time, guest-ping, guest-sync, guest-sync-delimited`.split(/,\s+/);

/** Commands that only newer agents offer, and nobody checks the arguments of. */
const UNLISTED = ['guest-get-cpustats', 'guest-get-diskstats', 'guest-get-load', 'guest-network-get-route'];

const LOGIND = 'org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager';

type Effect = (lab: GuestRestLab) => Promise<void>;

const TELLING: Record<string, Effect> = {
  'guest-sync': async lab => expect(await lab.run('guest-sync', { id: 4711 })).toBe(4711),
  'guest-sync-delimited': async lab => expect(await lab.run('guest-sync-delimited', { id: -5 })).toBe(-5),
  'guest-ping': async lab => expect(await lab.run('guest-ping')).toEqual({}),
  'guest-info': async lab =>
    expect(await lab.run('guest-info')).toEqual(await lab.guest.agent<Json>('guest-info')),
  'guest-get-time': async lab => {
    const before = Number(await lab.guest.sh('date +%s'));
    expect(Math.floor((await lab.run('guest-get-time')) / 1e9)).toBeGreaterThanOrEqual(before);
  },
  'guest-get-osinfo': async lab => expect((await lab.run('guest-get-osinfo')).id).toBe('debian'),
  'guest-get-host-name': async ({ guest, run }) => {
    await guest.sh('hostname seen-by-rest');
    expect(await run('guest-get-host-name')).toEqual({ 'host-name': 'seen-by-rest' });
  },
  'guest-get-timezone': async ({ guest, run }) =>
    expect(await run('guest-get-timezone')).toEqual({ zone: (await guest.sh('date +%Z')).trim(), offset: 0 }),
  'guest-get-users': async ({ guest, run }) => {
    // who is logged in stands in this file; its records are those of utmp(5)
    const record =
      'pack("s x2 i a32 a4 a32 a256 s2 i3 i4 x20", 7, $$, "tty9", "9", "somebody", "", 0, 0, 0, 1e9)';
    await guest.sh(`perl -e 'print ${record}' >> /run/utmp`);
    expect(await run('guest-get-users')).toContainEqual({ user: 'somebody', 'login-time': 1e9 });
  },
  'guest-get-memory-block-info': async ({ guest, run }) => {
    const size = await guest.sh('cat /sys/devices/system/memory/block_size_bytes');
    expect(await run('guest-get-memory-block-info')).toEqual({ size: Number.parseInt(size, 16) });
  },
  'guest-get-memory-blocks': async ({ guest, run }) => {
    const blocks: Json[] = await run('guest-get-memory-blocks');
    const names = blocks.map(block => `memory${block['phys-index']}`).sort();
    expect(names.join('\n')).toBe((await guest.sh('cd /sys/devices/system/memory; ls -d memory*')).trim());
    for (const block of blocks) expect(block.online).toBe(true);
  },
  'guest-get-devices': async ({ refusal }) => void (await refusal('guest-get-devices')),
  'guest-get-disks': async ({ guest, run }) => {
    const disks: Json[] = await run('guest-get-disks');
    const names = disks.map(({ name }) => name);
    const real = (await guest.sh('ls -d /sys/block/vd*')).trim().split('\n');
    expect(names).toEqual(expect.arrayContaining(real.map(path => path.replace('/sys/block', '/dev'))));
    expect(disks).toContainEqual(expect.objectContaining({ name: '/dev/vda', partition: false }));
  },
  'guest-get-fsinfo': async ({ guest, run }) => {
    const systems: Json[] = await run('guest-get-fsinfo');
    expect(systems.map(({ mountpoint, type }) => [mountpoint, type]).sort()).toEqual([
      ['/', 'ext4'],
      ['/mnt/data', 'ext4'],
    ]);
    const [used, free] = (await guest.sh('df -B1 --output=used,avail /mnt/data | tail -n 1'))
      .trim()
      .split(/\s+/)
      .map(Number);
    const data = systems.find(({ mountpoint }) => mountpoint === '/mnt/data');
    expect([data['used-bytes'], data['total-bytes']]).toEqual([used, used! + free!]);
  },
  'guest-network-get-interfaces': async ({ guest, run }) => {
    const name = (await guest.sh('ls /sys/class/net | grep -vx lo')).trim();
    await guest.sh(`ip addr add 192.0.2.7/24 dev ${name}; ip link set ${name} up`);
    const address = { 'ip-address-type': 'ipv4', 'ip-address': '192.0.2.7', prefix: 24 };
    expect(await run('guest-network-get-interfaces')).toContainEqual(
      expect.objectContaining({
        name,
        'hardware-address': MAC,
        'ip-addresses': expect.arrayContaining([address]),
      }),
    );
  },
  'guest-get-cpustats': async ({ run }) =>
    expect(await run('guest-get-cpustats')).toContainEqual(
      expect.objectContaining({ type: 'linux', cpu: 0 }),
    ),
  'guest-get-diskstats': async ({ run }) =>
    expect(await run('guest-get-diskstats')).toContainEqual(expect.objectContaining({ name: 'vda' })),
  'guest-get-load': async ({ run }) =>
    expect(await run('guest-get-load')).toMatchObject({ load1m: expect.any(Number) }),
  'guest-network-get-route': async ({ run }) =>
    expect(await run('guest-network-get-route')).toContainEqual(
      expect.objectContaining({ destination: '192.0.2.0' }),
    ),
};

const CHANGING: Record<string, Effect> = {
  'guest-set-time': async ({ guest, run }) => {
    const clocks = 'date +%s; cat /sys/class/rtc/rtc0/since_epoch';
    const hours = async () => (await guest.sh(clocks)).trim().split('\n').map(Number);
    expect(await run('guest-set-time', { time: 1_500_000_000_000_000_000 })).toEqual({});
    for (const now of await hours()) expect(Math.abs(now - 1_500_000_000)).toBeLessThan(10_000);
    expect(await run('guest-set-time', { time: Date.now() * 1e6 })).toEqual({});
    for (const now of await hours()) expect(Math.abs(now - Date.now() / 1000)).toBeLessThan(10_000);
  },
  'guest-get-vcpus': async ({ run }) => {
    const vcpus: Json[] = await run('guest-get-vcpus');
    const states = vcpus.map(vcpu => [vcpu['logical-id'], vcpu.online]).sort();
    expect(states).toEqual([
      [0, true],
      [1, false],
    ]);
  },
  'guest-set-vcpus': async ({ guest, run }) => {
    for (const online of [true, false]) {
      expect(await run('guest-set-vcpus', { vcpus: [{ 'logical-id': 1, online }] })).toBe(1);
      expect(await guest.sh('cat /sys/devices/system/cpu/cpu1/online')).toBe(online ? '1\n' : '0\n');
    }
  },
  'guest-set-memory-blocks': async ({ guest, run }) => {
    const blocks: Json[] = await run('guest-get-memory-blocks');
    const indexes = blocks.map(block => block['phys-index']);
    const set = (which: number[], online: boolean): Promise<Json[]> =>
      run('guest-set-memory-blocks', { 'mem-blks': which.map(index => ({ 'phys-index': index, online })) });
    const offline = async () =>
      (await guest.sh('cd /sys/devices/system/memory; grep -lx offline memory*/state || true'))
        .split('\n')
        .filter(Boolean)
        .map(path => Number(/\d+/.exec(path)![0]))
        .sort();
    const taken = (await set(indexes, false))
      .filter(({ response }) => response === 'success')
      .map(block => block['phys-index'])
      .sort();
    expect(taken).not.toEqual([]);
    expect(await offline()).toEqual(taken);
    for (const { response } of await set(taken, true)) expect(response).toBe('success');
    expect(await offline()).toEqual([]);
  },
  'guest-exec': async ({ guest, run }) => {
    const made = { path: 'touch', arg: ['/tmp/made by rest'] };
    expect(await run('guest-exec', made)).toEqual({ exitcode: 0, 'out-data': '', exited: true });
    expect(await guest.sh('ls /tmp')).toContain('made by rest');
  },
  'guest-exec-status': async ({ guest, run }) => {
    const script = 'while [ ! -e /tmp/go ]; do sleep 0.1; done; echo gone; exit 7';
    const started = await run('guest-exec', { path: 'sh', arg: ['-c', script] }, 1);
    expect(started).toEqual({ pid: expect.any(Number), exited: false });
    const { pid } = started;
    expect(await run('guest-exec-status', { pid })).toEqual({ exited: false });
    await guest.sh('touch /tmp/go');
    const exited = async () => {
      const now = await run('guest-exec-status', { pid });
      return now.exited ? now : undefined;
    };
    const ended = await waitFor('the end of the program', exited, 120_000);
    expect(ended).toEqual({ exitcode: 7, 'out-data': 'gone\n', exited: true });
    expect(await run('guest-exec-status', { pid })).toEqual(ended);
  },
  'guest-file-open': useFile,
  'guest-file-write': useFile,
  'guest-file-flush': useFile,
  'guest-file-seek': useFile,
  'guest-file-read': useFile,
  'guest-file-close': useFile,
  'guest-fsfreeze-status': async ({ run }) => expect(await run('guest-fsfreeze-status')).toBe('thawed'),
  'guest-fsfreeze-freeze': async lab => {
    expect(await isAtRest(lab)).toBe(false);
    expect(await lab.run('guest-fsfreeze-freeze')).toBe(2);
    expect(await isAtRest(lab)).toBe(true);
    expect(await lab.run('guest-fsfreeze-status')).toBe('frozen');
    expect(await lab.refusal('guest-exec', { path: 'true' })).toEqual([409, 'guest_frozen']);
    const shown = async () => (await lab.record()).guest_info.frozen_since !== null;
    await waitFor('the freeze in the record', shown, 120_000);
    expect(await lab.run('guest-fsfreeze-thaw')).toBe(2);
    expect(await isAtRest(lab)).toBe(false);
  },
  'guest-fsfreeze-freeze-list': async lab => {
    expect(await lab.run('guest-fsfreeze-freeze-list', { mountpoints: ['/mnt/data'] })).toBe(1);
    expect(await isAtRest(lab)).toBe(true);
    expect(await lab.run('guest-fsfreeze-thaw')).toBe(1);
    expect(await isAtRest(lab)).toBe(false);
  },
  'guest-fsfreeze-thaw': async lab => {
    expect(await lab.run('guest-fsfreeze-thaw')).toBe(0);
    expect(await lab.guest.agent('guest-fsfreeze-status')).toBe('thawed');
    const shown = async () => (await lab.record()).guest_info.frozen_since === null;
    await waitFor('the end of the freeze in the record', shown, 120_000);
  },
  'guest-fstrim': async ({ guest, run, dataDisk }) => {
    await guest.sh('head -c 32M /dev/urandom > /mnt/data/much; sync; rm /mnt/data/much; sync');
    const bytes = () => statSync(dataDisk).blocks * 512;
    const before = bytes();
    const { paths } = await run('guest-fstrim');
    expect(paths).toContainEqual(expect.objectContaining({ path: '/mnt/data' }));
    expect(before - bytes()).toBeGreaterThanOrEqual(32 * 1024 * 1024);
  },
  'guest-set-user-password': async ({ guest, run }) => {
    const fargs = { username: 'root', password: base64(SECRET), crypted: false };
    expect(await run('guest-set-user-password', fargs)).toEqual({});
    const hash = (await guest.sh('grep ^root: /etc/shadow')).split(':')[1]!;
    expect(await guest.sh(`perl -e 'print crypt("${SECRET}", q{${hash}})'`)).toBe(hash);
  },
  'guest-ssh-add-authorized-keys': async ({ guest, run }) => {
    expect(await run('guest-ssh-add-authorized-keys', { username: 'root', keys: [KEY] })).toEqual({});
    expect(await guest.sh('cat /root/.ssh/authorized_keys')).toContain(KEY);
  },
  'guest-ssh-get-authorized-keys': async ({ operator, id, run }) => {
    expect(await run('guest-ssh-get-authorized-keys', { username: 'root' })).toEqual({ keys: [KEY] });
    const listed = await operator.get(`/api/domains/${id}/ssh-keys/?ssh_user=root`);
    expect(listed).toEqual({ ssh_user: 'root', keys: [KEY] });
  },
  'guest-ssh-remove-authorized-keys': async ({ guest, run }) => {
    expect(await run('guest-ssh-remove-authorized-keys', { username: 'root', keys: [KEY] })).toEqual({});
    expect(await guest.sh('cat /root/.ssh/authorized_keys')).not.toContain(KEY);
  },
};

/** These put the guest to sleep, or end it. An emulated machine that has slept sleeps no more before it is started anew. */
export const ENDING: Record<string, Effect> = {
  // there is nowhere to save its memory to: the agent says so itself
  'guest-suspend-hybrid': async ({ guest, ask, refusal }) => {
    expect(await guest.sh(`busctl call ${LOGIND} CanHybridSleep`)).not.toContain('yes');
    // an emulated guest on a busy machine may take longer than its silence is waited for: asked again it knows sooner
    const isRefused = async () => (await ask('guest-suspend-hybrid')).status !== 200;
    await waitFor('a guest that knows soon enough that it cannot', isRefused, 240_000);
    expect(await refusal('guest-suspend-hybrid')).toEqual([502, 'guest_agent_failed']);
  },
  'guest-suspend-disk': async ({ guest, swapDisk, run, refusal, operator, id }) => {
    await guest.sh('mkswap /dev/vdc; swapon /dev/vdc');
    expect(await run('guest-suspend-disk')).toEqual({});
    await waitFor('the end of the guest', async () => (await guest.state()) === 'shut off', 280_000);
    // the last bytes of swap space's first page: there is a memory to be resumed
    expect(bytesOf(swapDisk, 4086, 9)).toBe('S1SUSPEND');
    expect(await refusal('guest-ping')).toEqual([409, 'guest_off']);
    await operator.ok('POST', `/api/domains/${id}/start/`);
  },
  'guest-suspend-ram': async ({ world, guest, run, refusal }) => {
    await guest.waitForAgent();
    expect(await run('guest-suspend-ram')).toEqual({});
    const asleep = async () => (await guest.state()) === 'pmsuspended';
    await waitFor('the sleep of the guest', asleep, 240_000);
    expect(await refusal('guest-ping')).toEqual([409, 'guest_off']);
    await world.node.virsh('dompmwakeup', guest.name);
    await guest.waitForAgent();
    expect(await run('guest-ping')).toEqual({});
  },
  'guest-shutdown': async ({ guest, run }) => {
    const bootId = 'cat /proc/sys/kernel/random/boot_id';
    const before = await guest.sh(bootId);
    expect(await run('guest-shutdown', { mode: 'reboot' })).toEqual({});
    const isOther = () =>
      guest.sh(bootId, 10_000).then(
        now => now !== before,
        () => false,
      );
    await waitFor('another start of the guest', isOther, 240_000, 1000);
    expect(await run('guest-shutdown', { mode: 'powerdown' })).toEqual({});
    await waitFor('the end of the guest', async () => (await guest.state()) === 'shut off', 240_000);
  },
};

/** In this order. */
export const ASKED: Record<string, Effect> = { ...TELLING, ...CHANGING };
/** What {@link ASKED} has beyond the list of the specification. */
export const BEYOND = UNLISTED;

/** Looks for the effect of a command in a guest; what its agent does not offer must be refused. */
export async function hasEffect(lab: GuestRestLab, command: string, effect: Effect): Promise<void> {
  if (lab.offered.includes(command)) return effect(lab);
  const [, key] = await lab.refusal(command);
  expect(['guest_command_disabled', 'guest_command_unknown']).toContain(key);
}

async function useFile({ guest, run, refusal }: GuestRestLab): Promise<void> {
  const handle = await run('guest-file-open', { path: '/tmp/by-rest', mode: 'w+' });
  const written = await run('guest-file-write', { handle, 'buf-b64': base64(`hello ${SECRET}`) });
  expect(written).toEqual({ count: 6 + SECRET.length, eof: false });
  expect(await run('guest-file-flush', { handle })).toEqual({});
  expect(await guest.sh('cat /tmp/by-rest')).toBe(`hello ${SECRET}`);
  const sought = await run('guest-file-seek', { handle, offset: 0, whence: 'set' });
  expect(sought).toMatchObject({ position: 0 });
  const read = await run('guest-file-read', { handle, count: 5 });
  expect(read).toMatchObject({ count: 5, 'buf-b64': base64('hello') });
  expect(await run('guest-file-close', { handle })).toEqual({});
  expect(await refusal('guest-file-read', { handle })).toEqual([502, 'guest_agent_failed']);
}

/** Whether the data disk, looked at from outside, is that of an ext4 with nothing left to do, as after an unmount. */
async function isAtRest({ dataDisk }: GuestRestLab): Promise<boolean> {
  const { stdout } = await runHere(['dumpe2fs', '-h', dataDisk]);
  return !stdout.includes('needs_recovery');
}

function bytesOf(path: string, from: number, length: number): string {
  const file = openSync(path, 'r');
  const bytes = Buffer.alloc(length);
  readSync(file, bytes, 0, length, from);
  closeSync(file);
  return bytes.toString('latin1');
}
