import { cleanPath } from '@virtkeep/shared/clean-path';
import type { Element } from '@xmldom/xmldom';
import type { AgentChannel, DomainConfig, HostdevConfig } from './config.ts';
import { attr, child, childrenAt, pathAttr, text } from './dom.ts';
import { readGuestOs } from './guest-os.ts';
import { readMetadata } from './metadata.ts';
import { parseDisk } from './parse-disk.ts';
import { invalid, parseXml } from './safe-xml.ts';

const AGENT_CHANNEL = 'org.qemu.guest_agent.0';
/** KiB per unit of `<memory unit=…>`; libvirt's formatdomain page. */
const KIB_PER_UNIT: Record<string, number> = {
  b: 1 / 1024, bytes: 1 / 1024, KB: 1000 / 1024, k: 1, KiB: 1, MB: 1e6 / 1024, M: 1024, MiB: 1024,
  GB: 1e9 / 1024, G: 1024 ** 2, GiB: 1024 ** 2, TB: 1e12 / 1024, T: 1024 ** 3, TiB: 1024 ** 3,
}; // biome-ignore format: a table

/**
 * Reads a domain's definition.
 * @param subject names it in the error; its name or uuid, or an archive's member.
 * @throws VirtkeepError xml_invalid: not well-formed, unsafe, not a `<domain>`, or without a name.
 */
export function parseDomain(xml: string, subject = 'a domain'): DomainConfig {
  return readDomain(parseXml(xml, 'domain', subject).root, subject);
}

/** As `parseDomain`, for a tree already read (`<domain>`, or `<inactiveDomain>` of a snapshot). */
export function readDomain(domain: Element, subject: string): DomainConfig {
  const name = text(domain, 'name');
  if (!name) throw invalid(subject, 'it has no name');
  return {
    uuid: text(domain, 'uuid')?.toLowerCase() ?? '',
    name,
    description: text(domain, 'description') ?? '',
    memoryMiB: memoryMiB(child(domain, 'memory')),
    vcpus: count(text(domain, 'vcpu')) || 1,
    ...readFirmware(domain),
    disks: childrenAt(domain, 'devices/disk').flatMap(disk => parseDisk(disk) ?? []),
    interfaces: childrenAt(domain, 'devices/interface').flatMap(readInterface),
    hostdevs: childrenAt(domain, 'devices/hostdev').map(readHostdev),
    agentChannel: readAgentChannel(domain),
    os: readGuestOs(domain),
    metadata: readMetadata(domain),
  };
}

type Firmware = Pick<DomainConfig, 'arch' | 'machine' | 'nvram' | 'tpm'>;

function readFirmware(domain: Element): Firmware {
  const type = child(domain, 'os/type');
  const nvram = readVariables(domain);
  const tpm = child(domain, 'devices/tpm');
  const backend = tpm && child(tpm, 'backend');
  const elsewhere = attr(backend && child(backend, 'source'), 'path');
  return {
    arch: attr(type, 'arch') ?? '',
    machine: attr(type, 'machine') ?? '',
    ...(nvram ? { nvram } : {}),
    ...(tpm
      ? {
          tpm: {
            model: attr(tpm, 'model'),
            backend: attr(backend, 'type') ?? '',
            version: attr(backend, 'version'),
            ...(elsewhere !== undefined && { elsewhere }),
          },
        }
      : {}),
  };
}

function readVariables(domain: Element): DomainConfig['nvram'] {
  const nvram = child(domain, 'os/nvram');
  const path = nvram && nvramPath(nvram);
  const isChosen = attr(child(domain, 'os'), 'firmware') === 'efi';
  const isStateless = attr(child(domain, 'os/loader'), 'stateless') === 'yes';
  const byName = path === undefined && isChosen && !isStateless;
  if (!nvram) return byName ? { byName } : undefined;
  return { path, template: attr(nvram, 'template'), ...(byName && { byName }) };
}

/** The variables' file stands in the text, or since libvirt 8.5 in a `<source file=…>`. */
function nvramPath(nvram: Element): string | undefined {
  const source = child(nvram, 'source');
  return source ? pathAttr(source, 'file') : cleanPath(nvram.textContent?.trim() ?? '') || undefined;
}

function readInterface(element: Element): DomainConfig['interfaces'] {
  const mac = attr(child(element, 'mac'), 'address')?.toLowerCase();
  return mac ? [{ mac }] : [];
}

function readHostdev(element: Element): HostdevConfig {
  const address = child(element, 'source/address');
  const type = attr(element, 'type') ?? '';
  return { type, address: attr(address, 'uuid')?.toLowerCase() ?? pciAddress(address) };
}

function pciAddress(address: Element | undefined): string | undefined {
  const parts = ['domain', 'bus', 'slot', 'function'].map(name => attr(address, name));
  const [domain, bus, slot, fn] = parts.map(part => part && Number.parseInt(part, 16));
  if (bus === undefined || slot === undefined) return undefined;
  const hex = (value: number | string | undefined, width: number) =>
    Number(value || 0)
      .toString(16)
      .padStart(width, '0');
  return `${hex(domain, 4)}:${hex(bus, 2)}:${hex(slot, 2)}.${hex(fn, 1)}`;
}

function readAgentChannel(domain: Element): AgentChannel {
  const targets = childrenAt(domain, 'devices/channel').flatMap(channel => child(channel, 'target') ?? []);
  const agent = targets.find(target => attr(target, 'name') === AGENT_CHANNEL);
  if (!agent) return 'absent';
  const state = attr(agent, 'state');
  return state === 'connected' || state === 'disconnected' ? state : 'present';
}

function memoryMiB(memory: Element | undefined): number {
  const unit = attr(memory, 'unit') ?? 'KiB';
  const kib = Object.hasOwn(KIB_PER_UNIT, unit) ? KIB_PER_UNIT[unit]! : 1;
  return Math.ceil((count(memory?.textContent?.trim()) * kib) / 1024);
}

function count(value: string | undefined): number {
  return value && /^\d{1,15}$/.test(value) ? Number(value) : 0;
}
