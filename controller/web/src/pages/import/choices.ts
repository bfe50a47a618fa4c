/** What is made of a foreign file, and how; as the API takes it. Pure. */
import type { BackupFile } from '../../api/client.ts';
import { type Kind, kindsOf } from '../../parts/import-kinds.ts';

export interface Choices {
  kind: Kind;
  /** Of an OVF with several VMs; empty: the only one. */
  system: string;
  /** Empty: the default one. */
  configuration: string;
  /** By a network of the file the one of the node; empty: as it is. */
  networks: Record<string, string>;
  node: string;
  datapool: string;
  verbose_name: string;
  virtio: boolean;
  inject_drivers: boolean;
  exclude_iso: boolean;
  keep_macs: boolean;
  start_on: boolean;
  compress: boolean;
  hash_sum: boolean;
  /** Of a disk. */
  format: string;
  target_bus: 'virtio' | 'scsi' | 'sata';
  memory_count: number;
  cpu_count: number;
  os_type: 'Linux' | 'Windows' | 'Other';
  firmware: 'bios' | 'uefi';
  network: string;
}

export function firstChoices(file: BackupFile): Choices {
  return {
    kind: kindsOf(file)[0] ?? 'vm',
    system: '',
    configuration: '',
    networks: {},
    node: '',
    datapool: '',
    verbose_name: '',
    virtio: file.type === 'disk',
    inject_drivers: false,
    exclude_iso: false,
    keep_macs: false,
    start_on: false,
    compress: false,
    hash_sum: false,
    format: '',
    target_bus: 'virtio',
    memory_count: 2048,
    cpu_count: 2,
    os_type: 'Linux',
    firmware: 'bios',
    network: '',
  };
}

/** Fields of which only those that say something are sent. */
function said<T extends Record<string, unknown>>(fields: T): Partial<T> {
  const isSaid = (value: unknown) => value !== '' && value !== false;
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => isSaid(value))) as Partial<T>;
}

/** What is chosen of the VM in the file. */
export function machineOf({ system, configuration, networks }: Choices) {
  const mapped = Object.fromEntries(Object.entries(networks).filter(([, here]) => here !== ''));
  return {
    ...said({ system, configuration }),
    ...(Object.keys(mapped).length === 0 ? {} : { networks: mapped }),
  };
}

export function restoreBody(file: string, choices: Choices) {
  const { node, datapool, verbose_name, virtio, inject_drivers, exclude_iso, keep_macs, start_on } = choices;
  return {
    file,
    node,
    ...machineOf(choices),
    ...said({ datapool, verbose_name, virtio, exclude_iso, keep_macs, start_on }),
    ...said({ inject_drivers: virtio && inject_drivers }),
  };
}

export function convertBody(choices: Choices) {
  const { node, datapool, virtio, inject_drivers, exclude_iso, compress, hash_sum } = choices;
  return {
    ...machineOf(choices),
    ...said({ node, datapool, virtio, exclude_iso, compress, hash_sum }),
    ...said({ inject_drivers: virtio && inject_drivers }),
  };
}

export function configBody(file: string, choices: Choices) {
  const { node, verbose_name, virtio, keep_macs } = choices;
  return { file, node, ...machineOf(choices), ...said({ verbose_name, virtio, keep_macs }) };
}

const FORMATS = ['qcow2', 'raw', 'vmdk', 'vhdx', 'vhd', 'vdi'] as const;
export const IMAGE_FORMATS: readonly string[] = FORMATS;

export function diskBody(file: string, choices: Choices) {
  const { node, datapool, verbose_name, memory_count, cpu_count, os_type, firmware, network, virtio } =
    choices;
  const format = FORMATS.find(one => one === choices.format);
  return {
    file,
    node,
    verbose_name,
    memory_count,
    cpu_count,
    os_type,
    firmware,
    target_bus: choices.target_bus,
    virtio,
    ...said({ datapool, network }),
    ...(format === undefined ? {} : { format }),
  };
}
