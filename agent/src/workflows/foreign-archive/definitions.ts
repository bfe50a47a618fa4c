/** The XML of an archive without manifest: the VM's current configuration, and its saved states. */
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Archive } from '../../archive/index.ts';
import {
  type DomainConfig,
  parseDomain,
  parseSnapshot,
  type SnapshotConfig,
} from '../../domain-xml/index.ts';

/** Most of them that are read, and of their bytes, each and all together; libvirt takes no larger definition. */
const MAX_DEFINITIONS = 1000;
const MAX_DEFINITION_BYTES = 4 * 1024 * 1024;
const MAX_ALL_BYTES = 64 * 1024 * 1024;
/** Comments and the like before the first element. */
const MAX_PREAMBLE = 100;

export interface Definitions {
  current: { member: string; number: number; config: DomainConfig };
  states: { member: string; config: SnapshotConfig }[];
  /** Configurations of more than one state are there. */
  hasSeveral: boolean;
  warnings: string[];
}

type Reading = Pick<Archive, 'path' | 'members' | 'readMember'>;

/**
 * The configuration whose name has the largest number in its prefix is the current one (specification 2.1); where none has a number, it
 * is the only one.
 * @throws VirtkeepError archive_unsupported when none can be told, xml_invalid with the member's name, archive_damaged, io_failed, canceled
 */
export async function readDefinitions(archive: Reading, signal: AbortSignal): Promise<Definitions> {
  const texts = await readTexts(archive, signal);
  const domains = texts.filter(({ root }) => root === 'domain');
  const { name, text } = currentOf(domains, archive.path);
  const warnings: string[] = [];
  const states: Definitions['states'] = [];
  for (const { name: member, text: xml, root } of texts) {
    if (root !== 'domainsnapshot') continue;
    try {
      states.push({ member, config: parseSnapshot(xml, member) });
    } catch (error) {
      if (!hasKey(error, 'xml_invalid')) throw error;
      warnings.push(`The saved state in "${member}" is left out: ${reasonOf(error)}`);
    }
  }
  const numbers = new Set(domains.flatMap(domain => prefixOf(domain.name) ?? []));
  const number = prefixOf(name) ?? 1;
  return {
    current: {
      member: name,
      number: number >= 1 && number <= 999_999 ? number : 1,
      config: parseDomain(text, name),
    },
    states,
    hasSeveral: numbers.size > 1,
    warnings,
  };
}

interface Text {
  name: string;
  text: string;
  root: string;
}

async function readTexts(archive: Reading, signal: AbortSignal): Promise<Text[]> {
  const { path, members } = archive;
  const unsupported = (reason: string) => new VirtkeepError('archive_unsupported', { path, reason });
  const found = members.filter(({ name, isSpecial }) => /\.xml$/i.test(name) && !isSpecial);
  const bytes = found.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  if (found.length > MAX_DEFINITIONS || bytes > MAX_ALL_BYTES)
    throw unsupported(`it has ${found.length} XML files of ${bytes} bytes, more than are read`);
  const texts: Text[] = [];
  for (const { name } of found) {
    const text = (await archive.readMember(name, signal, MAX_DEFINITION_BYTES)).toString('utf8');
    texts.push({ name, text, root: rootOf(text) });
  }
  return texts;
}

function prefixOf(name: string): number | undefined {
  const prefix = /^(\d+)_/.exec(name)?.[1];
  return prefix === undefined ? undefined : Number(prefix);
}

/** @throws VirtkeepError archive_unsupported */
function currentOf(domains: readonly Text[], path: string): Text {
  const largest = domains.reduce<number | undefined>((most, { name }) => {
    const number = prefixOf(name);
    return number === undefined || (most !== undefined && most >= number) ? most : number;
  }, undefined);
  const candidates = domains.filter(({ name }) => prefixOf(name) === largest);
  if (candidates.length === 1) return candidates[0]!;
  const names = candidates.slice(0, 5).map(({ name }) => `"${name}"`);
  const reason =
    candidates.length === 0
      ? 'it has neither a manifest of this service nor the configuration of a VM (an XML file)'
      : `which of the configurations ${names.join(', ')} is the current one cannot be told`;
  throw new VirtkeepError('archive_unsupported', { path, reason });
}

/** Name of the first element; empty when there is none. In time that grows with the text, whatever it is. */
function rootOf(text: string): string {
  let at = text.indexOf('<');
  for (let steps = 0; at >= 0 && steps < MAX_PREAMBLE; steps += 1) {
    const end = text.startsWith('<!--', at) ? '-->' : text.startsWith('<?', at) ? '?>' : undefined;
    if (end === undefined) break;
    const close = text.indexOf(end, at);
    if (close < 0) return '';
    at = text.indexOf('<', close);
  }
  return at < 0 ? '' : (/^<([\w:.-]{1,100})/.exec(text.slice(at, at + 110))?.[1] ?? '');
}
