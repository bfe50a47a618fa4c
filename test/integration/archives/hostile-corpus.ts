/** What archives were made for that reach a node through who restores them, each with the file that it is after. */
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Manifest } from '../../../agent/src/archive/index.ts';
import { makeTwoFaced } from '../../lab/disks.ts';
import { Recorder, type Touched } from '../../lab/recorder.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { type Hostile, type HostileLab, IMAGE_MEMBER } from './hostile-lab.ts';

export const drive = (path: string, device = 'cdrom', target = 'sda', format = 'raw') =>
  `<disk type='file' device='${device}'><driver name='qemu' type='${format}'/><source file='${path}'/><target dev='${target}' bus='${device === 'floppy' ? 'fdc' : 'sata'}'/></disk>`;
const disk = (path: string, target: string) =>
  `<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='${path}'/><target dev='${target}' bus='virtio'/></disk>`;
const withImage =
  (formerPath: string, member: string | null = null) =>
  (manifest: Manifest) => ({
    ...manifest,
    isos: [{ target: 'sda', member, formerPath, sizeBytes: 10, poolId: null, poolName: null }],
  });

/** An image whose content is that of a file, byte for byte. */
function packed(path: string): string {
  execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', path, `${path}.qcow2`]);
  return `${path}.qcow2`;
}

/** @param at a path outside of all pools */
export const CORPUS: Record<
  string,
  (at: (name: string) => string, pool: string, lab: HostileLab) => Hostile
> = {
  'devices on files': at => ({
    trust: 'foreign',
    devices: `<serial type='file'><source path='${at('serial')}'/></serial>
      <parallel type='file'><source path='${at('parallel')}'/></parallel>
      <channel type='unix'><source mode='bind' path='${at('socket')}'/><target type='virtio' name='x'/></channel>
      <serial type='pty'><log file='${at('log')}' append='off'/></serial>`,
  }),
  'a share of a directory': at => ({
    trust: 'fleet',
    devices: `<filesystem type='mount'><source dir='${at('')}'/><target dir='t'/></filesystem>`,
  }),
  'random numbers of a file': at => ({
    trust: 'foreign',
    devices: `<rng model='virtio'><backend model='random'>${at('secret')}</backend></rng>`,
  }),
  'a second list of devices': at => ({
    trust: 'own',
    more: `<devices>${disk(at('secret'), 'vdb')}</devices>`,
  }),
  'drives and a disk': at => ({
    trust: 'own',
    devices: `${drive(at('secret'))}${drive(at('secret'), 'floppy', 'fda')}${disk(at('secret'), 'vdb')}`,
  }),
  'a kernel': at => ({
    trust: 'foreign',
    os: `<kernel>${at('secret')}</kernel><initrd>${at('secret')}</initrd>`,
  }),
  firmware: at => ({ trust: 'foreign', os: `<loader readonly='yes' type='rom'>${at('secret')}</loader>` }),
  'an emulator': at => ({ trust: 'foreign', devices: `<emulator>${at('emulator')}</emulator>` }),
  'arguments of QEMU': at => ({
    trust: 'fleet',
    more: `<qemu:commandline><qemu:arg value='-drive'/><qemu:arg value='if=none,format=raw,file=${at('secret')}'/></qemu:commandline>`,
  }),
  'a dotted path of an image': (at, pool) => ({
    trust: 'own',
    devices: drive('/x.iso'),
    manifest: withImage(`${pool}/../../..${'/..'.repeat(pool.split('/').length)}${at('secret')}`),
  }),
  'a link to an image': (_at, pool) => ({
    trust: 'own',
    devices: drive('/x.iso'),
    manifest: withImage(`${pool}/link.iso`),
  }),
  'an image that is another disk': (_at, _pool, lab) => ({
    trust: 'foreign',
    devices: drive('/x.iso'),
    manifest: withImage(lab.plant('other-vm.img')),
  }),
  'the memory of a state': at => ({
    trust: 'own',
    state: { memory: `<memory snapshot='external' file='${at('victim')}'/>` },
  }),
  'drives of a state': at => ({
    trust: 'own',
    state: {
      devices: `${drive(at('secret'))}${drive(at('secret'), 'floppy', 'fda')}${disk(at('secret'), 'vdb')}`,
    },
  }),
  'devices of a state': at => ({
    trust: 'foreign',
    state: { devices: `<serial type='file'><source path='${at('serial')}'/></serial>` },
  }),
  'devices of a memory': at => ({
    trust: 'foreign',
    memoryDevices: `${drive(at('secret'))}<serial type='file'><source path='${at('serial')}'/></serial>`,
    request: { startOn: true },
  }),
  'a disk id that is a path': at => ({
    trust: 'own',
    manifest: manifest => ({
      ...manifest,
      disks: manifest.disks.map(one => ({ ...one, id: `../../../../../../../..${at('made')}` })),
    }),
    request: { keepIdentity: true },
  }),
  'a disk behind a link': (_at, pool) => ({
    trust: 'own',
    manifest: manifest => ({
      ...manifest,
      disks: manifest.disks.map(one => ({
        ...one,
        formerPath: `${pool}/link/made.qcow2`,
        layers: one.layers.map((layer, index) => ({
          ...layer,
          formerPath: `${pool}/link/made${index}.qcow2`,
        })),
      })),
    }),
  }),
};

/** Images that stand on a file of the host by their header, which nobody may go by; each with the file that it is after. */
export const TWO_FACED: typeof CORPUS = {
  'an image of a pool': (at, pool) => {
    const image = makeTwoFaced(join(pool, 'two-faced.iso'), at('secret'));
    return { trust: 'own', devices: drive(image, 'cdrom', 'sda', 'qcow2'), manifest: withImage(image) };
  },
  "an image of a pool, in somebody else's archive": (at, pool) => {
    const image = makeTwoFaced(join(pool, 'two-faced.iso'), at('secret'));
    return { trust: 'foreign', devices: drive(image, 'cdrom', 'sda', 'qcow2'), manifest: withImage(image) };
  },
  'an image of the archive': (at, pool) => ({
    trust: 'own',
    devices: drive('/x.iso', 'cdrom', 'sda', 'qcow2'),
    images: { drive: makeTwoFaced(join(pool, 'two-faced.iso'), at('secret')) },
    manifest: withImage('/x.iso', IMAGE_MEMBER),
  }),
  'the first layer of a disk': (at, pool) => ({
    trust: 'own',
    images: { base: makeTwoFaced(join(pool, 'two-faced.qcow2'), at('secret')) },
  }),
  'a raw disk': (at, pool) => ({
    trust: 'own',
    images: { top: packed(makeTwoFaced(join(pool, 'two-faced.img'), at('secret'))) },
    manifest: manifest => ({
      ...manifest,
      snapshots: [],
      disks: manifest.disks.map(one => ({
        ...one,
        encryption: 'luks',
        layers: one.layers.slice(1).map(layer => ({ ...layer, frozenBy: null })),
      })),
    }),
  }),
};

/** Those that can be made at once, by who seems to have made the archive. */
export const TOGETHER: [string, string[]][] = [
  [
    'somebody else',
    [
      'devices on files',
      'a share of a directory',
      'a second list of devices',
      'a kernel',
      'firmware',
      'an emulator',
      'arguments of QEMU',
      'an image that is another disk',
    ],
  ],
  ['the node itself', ['the memory of a state', 'drives of a state', 'a dotted path of an image']],
];

/** Where the agent, libvirtd and QEMU may read: the system's own files. */
const SYSTEM = /^\/(usr|lib|lib64|lib32|bin|sbin|etc|proc|sys|dev|run)(\/|$)|^\/$/;
/** Where they also write: their own directories, which are this test's own. */
const OWN = /^\/(etc|run|var\/(lib|run|log|cache))\/libvirt(\/|$)|^\/(dev|proc|sys|run)\//;
const READS = new Set(['open', 'openat', 'openat2', 'execve']);

function strayIn(record: Touched[], dir: string, outside: string): Touched[] {
  const roots = [dir, process.cwd(), tmpdir()];
  return record.filter(({ call, path, succeeded }) => {
    if (path.startsWith(outside) || path === '/etc/shadow') return true;
    if (!succeeded || OWN.test(path) || (READS.has(call) && SYSTEM.test(path))) return false;
    return !roots.some(root => path === root || path.startsWith(`${root}/`));
  });
}

/**
 * A VM's whole life after the restore of such an archive.
 * @param isRecorded everything that libvirtd, QEMU and the agent open is recorded, at ten times the cost
 * @returns what was said and failed, and what was touched that is not theirs
 */
export async function liveWatched(
  lab: WorkflowLab,
  hostile: HostileLab,
  attack: Hostile,
  isRecorded: boolean,
) {
  const filename = await hostile.archive(attack);
  const output = join(lab.world.dir, `${filename}.strace`);
  hostile.seal();
  const recorder = isRecorded
    ? await Recorder.start([process.pid, lab.world.node.libvirtdPid!], output)
    : null;
  const life = await hostile.live(filename, attack);
  const record = (await recorder?.stop()) ?? [];
  const stray = strayIn(record, lab.world.dir, hostile.outside).map(({ call, path }) => `${call} ${path}`);
  return { ...life, touched: [...new Set([...hostile.unsealed(), ...stray])] };
}
