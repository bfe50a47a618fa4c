/** What qemu-ga 7.2 for Windows answers, for a scripted agent: the shapes are those of its schema. */
import type { Handler } from '../../lab/fake-agent.ts';

const DISABLED = ['guest-set-vcpus', 'guest-suspend-hybrid', 'guest-get-memory-blocks', 'guest-set-memory-blocks',
  'guest-get-memory-block-info', 'guest-fsfreeze-freeze-list']; // biome-ignore format: a list of words
const NO_REPLY = ['guest-shutdown', 'guest-suspend-disk', 'guest-suspend-ram', 'guest-suspend-hybrid'];
const ENABLED = ['guest-sync', 'guest-sync-delimited', 'guest-ping', 'guest-info', 'guest-get-time', 'guest-set-time',
  'guest-shutdown', 'guest-file-open', 'guest-file-close', 'guest-file-read', 'guest-file-write', 'guest-file-seek',
  'guest-file-flush', 'guest-fsfreeze-status', 'guest-fsfreeze-freeze', 'guest-fsfreeze-thaw', 'guest-fstrim',
  'guest-suspend-disk', 'guest-suspend-ram', 'guest-network-get-interfaces', 'guest-get-vcpus', 'guest-get-disks',
  'guest-get-fsinfo', 'guest-set-user-password', 'guest-exec', 'guest-exec-status', 'guest-get-host-name',
  'guest-get-users', 'guest-get-timezone', 'guest-get-osinfo', 'guest-get-devices']; // biome-ignore format: a list of words

const OS = {
  id: 'mswindows',
  name: 'Microsoft Windows',
  'pretty-name': 'Windows Server 2022 Standard',
  version: 'Microsoft Windows Server 2022',
  'version-id': '2022',
  variant: 'server',
  'variant-id': 'server',
  machine: 'x86_64',
  'kernel-release': '20348',
  'kernel-version': '10.0',
};

const NETWORK = [
  {
    name: 'Ethernet Instance 0',
    'hardware-address': '52:54:00:aa:bb:cc',
    'ip-addresses': [
      { 'ip-address': 'fe80::1c2d:3e4f:5a6b:7c8d%6', 'ip-address-type': 'ipv6', prefix: 64 },
      { 'ip-address': '192.0.2.15', 'ip-address-type': 'ipv4', prefix: 24 },
    ],
  },
  {
    name: 'Loopback Pseudo-Interface 1',
    'ip-addresses': [
      { 'ip-address': '::1', 'ip-address-type': 'ipv6', prefix: 128 },
      { 'ip-address': '127.0.0.1', 'ip-address-type': 'ipv4', prefix: 8 },
    ],
  },
];

const FILE_SYSTEMS = [
  {
    name: '\\\\?\\Volume{0b8f3c1e-0000-0000-0000-100000000000}\\',
    mountpoint: 'C:\\',
    type: 'NTFS',
    'used-bytes': 17_000_000_000,
    'total-bytes': 42_000_000_000,
    disk: [],
  },
];

const DEVICES = [
  {
    'driver-name': 'Red Hat VirtIO Ethernet Adapter',
    'driver-date': 1_650_000_000_000_000_000,
    'driver-version': '100.91.104.21500',
    id: { type: 'pci', 'vendor-id': 6900, 'device-id': 4161 },
  },
];

/** Handlers that make a scripted agent that of a Windows guest. */
export function windowsAgent(): Record<string, Handler> {
  const commands = [...ENABLED, ...DISABLED].map(name => ({
    name,
    enabled: !DISABLED.includes(name),
    'success-response': !NO_REPLY.includes(name),
  }));
  const disabled = Object.fromEntries(
    DISABLED.map((name): [string, Handler] => [
      name,
      () => ({ error: { class: 'CommandNotFound', desc: `Command ${name} has been disabled` } }),
    ]),
  );
  return {
    ...disabled,
    'guest-info': () => ({ return: { version: '7.2.0', supported_commands: commands } }),
    'guest-get-osinfo': () => ({ return: OS }),
    'guest-get-host-name': () => ({ return: { 'host-name': 'WIN-SCRIPTED' } }),
    'guest-network-get-interfaces': () => ({ return: NETWORK }),
    'guest-get-fsinfo': () => ({ return: FILE_SYSTEMS }),
    'guest-get-users': () => ({
      return: [{ user: 'Administrator', domain: 'WIN-SCRIPTED', 'login-time': 1_700_000_000.25 }],
    }),
    'guest-get-timezone': () => ({ return: { zone: 'W. Europe Standard Time', offset: 3600 } }),
    'guest-get-devices': () => ({ return: DEVICES }),
  };
}
