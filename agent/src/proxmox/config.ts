/** The configuration of a VM of Proxmox VE (`qemu-server.conf`) as data: lines of `key: value`, of which nothing is judged yet. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { KiB } from '@virtkeep/shared/units';

/** A value of several parts: `local:vm-1-disk-0,size=8G` has the main part `local:vm-1-disk-0` and the option `size`. */
export interface Parts {
  main: string;
  options: Map<string, string>;
}

export interface GuestConfig {
  /** In their order; of a key that stands twice the last. */
  values: Map<string, string>;
  description: string;
  /** What the archive's devices are: `scsi0` by `drive-scsi0`. */
  keyOfDevice: Map<string, string>;
  /** Names of sections, which are saved states and changes to come. */
  sections: string[];
  /** Lines that are none. */
  unread: number;
}

const MAX_BYTES = 512 * KiB;
const MAX_LINES = 10_000;
const MAX_DESCRIPTION = 8 * KiB;

/**
 * @param subject names the archive in errors
 * @throws VirtkeepError appliance_invalid when it is no text, or larger than any configuration
 */
export function readGuestConfig(bytes: Uint8Array, subject: string): GuestConfig {
  const lines = textOf(bytes, subject).split(/\r?\n/);
  if (lines.length > MAX_LINES) throw invalid(subject, `qemu-server.conf has ${lines.length} lines`);
  const values = new Map<string, string>();
  const keyOfDevice = new Map<string, string>();
  const sections: string[] = [];
  const comments: string[] = [];
  let unread = 0;
  for (const line of lines.map(text => text.trim())) {
    const section = /^\[(.{1,200})\]$/.exec(line)?.[1];
    const [, key, device] = /^#qmdump#map:([^:\s]+):([^:\s]+):/.exec(line) ?? [];
    // the value begins with no blank: giving one back to it would cost another look at the whole line
    const [, name, value] = /^([a-z][a-z\d_-]{0,63}):\s*(?!\s)(.*)$/i.exec(line) ?? [];
    if (section !== undefined) sections.push(section);
    else if (key !== undefined && device !== undefined) keyOfDevice.set(device, key);
    else if (line === '' || sections.length > 0 || line.startsWith('#qmdump#')) continue;
    else if (line.startsWith('#')) comments.push(line.slice(1));
    else if (name !== undefined && value !== undefined) values.set(name.toLowerCase(), value);
    else unread += 1;
  }
  const description = (values.get('description') ?? decoded(comments.join('\n'))).slice(0, MAX_DESCRIPTION);
  return { values, description: printable(description), keyOfDevice, sections, unread };
}

export const invalid = (path: string, reason: string): VirtkeepError =>
  new VirtkeepError('appliance_invalid', { path, reason });

function textOf(bytes: Uint8Array, subject: string): string {
  if (bytes.length > MAX_BYTES) throw invalid(subject, `qemu-server.conf has ${bytes.length} bytes`);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw invalid(subject, 'qemu-server.conf is no text in UTF-8');
  }
}

/** Descriptions are written percent-encoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What XML cannot hold goes. */
const printable = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
  text.toWellFormed().replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, '');

/** @param mainKey under which the main part may stand, too: `file` of a drive */
export function partsOf(value: string, mainKey = ''): Parts {
  const options = new Map<string, string>();
  let main: string | undefined;
  for (const [index, part] of value.split(',').entries()) {
    const at = part.indexOf('=');
    if (at >= 0) options.set(part.slice(0, at).trim().toLowerCase(), part.slice(at + 1).trim());
    else if (index === 0) main = part.trim();
    else options.set(part.trim().toLowerCase(), '1');
  }
  return { main: main ?? options.get(mainKey) ?? '', options };
}

export const isOn = (text: string | undefined): boolean => /^(1|on|yes|true)$/i.test(text ?? '');
