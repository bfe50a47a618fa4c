import type { BootFiles } from './tiny-guest.ts';

export interface DiskSpec {
  path: string;
  format?: 'qcow2' | 'raw';
  /** Default: vda, vdb … in order. */
  target?: string;
  bus?: 'virtio' | 'sata' | 'scsi';
  device?: 'disk' | 'cdrom' | 'lun';
  type?: 'file' | 'block';
  readonly?: boolean;
  serial?: string;
  /** A name of the user's own for the device, `ua-…`. */
  alias?: string;
}

export interface GuestXmlOptions {
  name: string;
  uuid?: string;
  /** A kernel, or firmware that does all itself. */
  boot: BootFiles | { rom: string };
  disks?: DiskSpec[];
  /** true: channel of the guest agent; false: a guest without one; a path: a scripted agent listens there (fake-agent.ts). */
  agent?: boolean | string;
  memoryMiB?: number;
  /** Default 1. */
  vcpus?: number;
  /** Appended to the kernel command line; `writer=/mnt/vda/w` starts the guest's writer. */
  cmdline?: string;
  /** OVMF with a variables file of its own (slower: 16–20 s); `chosen`: by libvirt, at each start. */
  uefi?: boolean | 'chosen';
  /** Software TPM 2.0. */
  tpm?: boolean;
  /** File for the console; default a pty. */
  consoleFile?: string;
  /** Raw XML at the end of <devices>. */
  devices?: string;
  /** Raw XML inside <metadata>. */
  metadata?: string;
}

/** Spare ports let disks be hot-plugged; q35 has no other place for them. */
const SPARE_PORTS = 8;
const QEMU_NAMESPACE = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'";

/** Definition of an emulated guest; a kernel is booted directly. */
export function guestXml(options: GuestXmlOptions): string {
  const scripted = typeof options.agent === 'string';
  const ports = "<controller type='pci' model='pcie-root-port'/>".repeat(SPARE_PORTS);
  const console = options.consoleFile
    ? `<serial type='file'><source path='${options.consoleFile}'/></serial>`
    : "<serial type='pty'/>";
  return `<domain type='qemu' ${scripted ? QEMU_NAMESPACE : ''}>
  <name>${options.name}</name>
  ${options.uuid ? `<uuid>${options.uuid}</uuid>` : ''}
  ${options.metadata ? `<metadata>${options.metadata}</metadata>` : ''}
  <memory unit='MiB'>${options.memoryMiB ?? 128}</memory>
  <vcpu>${options.vcpus ?? 1}</vcpu>
  <os${options.uefi === 'chosen' ? " firmware='efi'" : ''}>
    <type arch='x86_64' machine='q35'>hvm</type>
    ${options.uefi === true ? UEFI : ''}
    ${bootXml(options)}
  </os>
  <features><acpi/><tcg><tb-cache unit='MiB'>64</tb-cache></tcg></features>
  <clock offset='utc'/>
  <on_crash>destroy</on_crash>
  <devices>
    <controller type='pci' model='pcie-root'/>${ports}
    <controller type='scsi' model='virtio-scsi'/>
    ${(options.disks ?? []).map(diskXml).join('\n    ')}
    ${agentXml(options.agent ?? true)}
    ${options.tpm ? "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>" : ''}
    ${console}
    <memballoon model='none'/>
    ${options.devices ?? ''}
  </devices>
  ${scripted ? SCRIPTED_AGENT_OVERRIDE : ''}
</domain>
`;
}

/** Parts of the kernel that nobody uses here, and take long to begin: a test of itself, and two for its developers. */
const NOT_BEGUN = ['crypto_kdf108_init', 'slab_sysfs_init', 'init_kprobe_trace'];
/**
 * What an emulated processor pays most for while the kernel starts, more than a third of the time; among it that the kernel changes its own
 * code for a machine of one processor (`noreplace-smp`: it does not).
 */
const FAST_BOOT = `mitigations=off cryptomgr.notests noreplace-smp initcall_blacklist=${NOT_BEGUN.join(',')}`;
/**
 * A kernel that starts counts whether its timer ticks in time; under emulation, on a busy machine, it does not always, and the
 * kernel gives up. One that has given up starts again.
 */
const SURE_BOOT = 'no_timer_check panic=1';
/** Of each kernel that an emulated guest starts. */
export const KERNEL_WORDS = `console=ttyS0 quiet ${FAST_BOOT} ${SURE_BOOT}`;

/** In `<os>`. */
export function bootXml({
  boot,
  uefi,
  cmdline = '',
}: Pick<GuestXmlOptions, 'boot' | 'uefi' | 'cmdline'>): string {
  if ('rom' in boot) return `<loader readonly='yes' type='rom'>${boot.rom}</loader>`;
  const { initrd } = boot;
  const kernel = uefi ? boot.uefiKernel : boot.kernel;
  const words = `${KERNEL_WORDS} ${cmdline}`;
  return `<kernel>${kernel}</kernel><initrd>${initrd}</initrd><cmdline>${words}</cmdline>`;
}

const UEFI = `<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader>
    <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'/>`;

/** virtconsole reports its port open at once, so libvirt takes the channel for connected. */
const SCRIPTED_AGENT_OVERRIDE = `<qemu:override><qemu:device alias='channel0'><qemu:frontend>
    <qemu:property name='driver' type='string' value='virtconsole'/>
  </qemu:frontend></qemu:device></qemu:override>`;

function agentXml(agent: boolean | string): string {
  if (agent === false) return '';
  const target = "<target type='virtio' name='org.qemu.guest_agent.0'/>";
  if (agent === true) return `<channel type='unix'>${target}</channel>`;
  return `<channel type='unix'><source mode='connect' path='${agent}'/>${target}</channel>`;
}

function diskXml(disk: DiskSpec, index: number): string {
  const device = disk.device ?? 'disk';
  const type = disk.type ?? 'file';
  const bus = disk.bus ?? (device === 'cdrom' ? 'sata' : 'virtio');
  const prefix = bus === 'virtio' ? 'vd' : 'sd';
  const target = disk.target ?? `${prefix}${String.fromCharCode('a'.charCodeAt(0) + index)}`;
  const format = disk.format ?? (device === 'cdrom' ? 'raw' : 'qcow2');
  return (
    `<disk type='${type}' device='${device}'><driver name='qemu' type='${format}'/>` +
    `<source ${type === 'block' ? 'dev' : 'file'}='${disk.path}'/><target dev='${target}' bus='${bus}'/>` +
    `${disk.readonly || device === 'cdrom' ? '<readonly/>' : ''}${disk.serial ? `<serial>${disk.serial}</serial>` : ''}` +
    `${disk.alias ? `<alias name='${disk.alias}'/>` : ''}</disk>`
  );
}
