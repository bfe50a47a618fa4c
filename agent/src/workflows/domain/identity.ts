/** Under which name, uuid and MACs a VM comes back. */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { isUuid } from '@virtkeep/shared/ids';
import { type DomainConfig, type Identity, newMacs } from '../../domain-xml/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { refuseLeftMemory } from './left-memory.ts';

/** Which one was asked for. */
type Asked = Pick<StartRestoreRequest, 'keepIdentity' | 'domainId' | 'name'>;

const MAX_NAME_BYTES = 200;
const MAX_SUFFIX = 1000;

/**
 * @throws VirtkeepError identity_in_use while the original exists here (the controller asks the other nodes),
 *   name_in_use, invalid_name, invalid_uuid; file_exists for a saved memory of that name
 */
export async function chooseIdentity(
  dependencies: Pick<WorkflowDependencies, 'libvirt' | 'nodeName' | 'saveDirectory'>,
  request: Asked,
  config: DomainConfig,
): Promise<Identity> {
  const domains = await dependencies.libvirt().domains();
  const uuid = request.keepIdentity ? config.uuid : request.domainId;
  if (!isUuid(uuid)) throw new VirtkeepError('invalid_uuid', { value: uuid, field: 'domain_id' });
  const original = domains.find(domain => domain.uuid === uuid);
  if (original)
    throw new VirtkeepError('identity_in_use', { domain: original.name, node: dependencies.nodeName });
  const name = chooseName(domains, request, config.name);
  await refuseLeftMemory(dependencies, name);
  if (request.keepIdentity) return { name, uuid };
  return { name, uuid, macs: newMacs(config.interfaces.map(({ mac }) => mac)) };
}

function chooseName(domains: Domain[], request: Asked, oldName: string): string {
  if (request.name !== '' || request.keepIdentity) return requireFreeName(domains, request.name || oldName);
  checkName(oldName);
  if (!domains.some(domain => domain.name === oldName)) return oldName;
  return suffixedName(domains, oldName, 'restored');
}

/** @throws VirtkeepError name_in_use, invalid_name */
export function requireFreeName(domains: readonly { name: string }[], name: string): string {
  checkName(name);
  if (domains.some(domain => domain.name === name)) throw new VirtkeepError('name_in_use', { name });
  return name;
}

/** The first free one of `web_restored`, `web_restored_2` … @throws VirtkeepError name_in_use, invalid_name */
export function suffixedName(domains: readonly { name: string }[], oldName: string, suffix: string): string {
  const taken = new Set(domains.map(domain => domain.name));
  for (let count = 1; count <= MAX_SUFFIX; count += 1) {
    const name = `${oldName}_${suffix}${count === 1 ? '' : `_${count}`}`;
    checkName(name);
    if (!taken.has(name)) return name;
  }
  throw new VirtkeepError('name_in_use', { name: oldName });
}

/** libvirt makes file names of it. */
function checkName(name: string): void {
  const refuse = (reason: string) => new VirtkeepError('invalid_name', { value: name.slice(0, 300), reason });
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) throw refuse(`it is longer than ${MAX_NAME_BYTES} bytes`);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\u0000-\u001f\u007f/]/.test(name)) throw refuse('it holds a slash or a control character');
  if (name.trim() === '' || name === '.' || name === '..') throw refuse('it is empty or a directory');
}
