import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseXml } from '../../domain-xml/index.ts';
import { applianceOf, systemsOf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import type { FoundFile } from '../archives/find-file.ts';
import { definitionTypeOf, readDefinitionFile } from '../config-restore/definition-file.ts';
import { networkNamesOf, networksOf } from '../config-restore/networks.ts';
import type { OperationContext } from '../context.ts';
import type { ForeignFile } from './foreign.ts';
import { type OvfChoice, openForeignOvf } from './foreign-ovf.ts';
import { openForeignVirtnbd } from './foreign-virtnbd.ts';
import { openForeignVma } from './foreign-vma.ts';

/** One VM of a foreign file. @throws VirtkeepError as `openForeignOvf`, `openForeignVma` and `openForeignVirtnbd` */
export function openForeign(
  source: FoundFile,
  choice: OvfChoice & { state: string },
  context: OperationContext,
): Promise<ForeignFile> {
  const type = backupTypeOf(source.filename);
  if (type === 'vma') return openForeignVma(source, context);
  if (type === 'virtnbdbackup') return openForeignVirtnbd(source, choice, context);
  return openForeignOvf(source, choice, context);
}

type VmChoice = Pick<OvfChoice, 'system' | 'configuration'>;

/** A VM of a file, as it is chosen. */
export interface ChosenVm extends VmChoice {
  /** Networks that its adapters are connected to. */
  networks: string[];
}

/**
 * The VMs that a file describes.
 * @throws VirtkeepError conflicting_fields, ovf_system_ambiguous when one of them cannot be named, ovf_configuration_unknown, and as
 * `readDefinitionFile`
 */
export async function choicesOf(
  source: FoundFile,
  { system, configuration }: VmChoice,
  signal: AbortSignal,
): Promise<ChosenVm[]> {
  if (system !== '')
    throw new VirtkeepError('conflicting_fields', { first: 'all', second: 'system', field: 'all' });
  const file = await readDefinitionFile(source, definitionTypeOf(source.filename)!, { signal });
  if (file.type === 'xml') {
    const { root } = parseXml(file.xml, 'domain', source.filename);
    return [{ system: '', configuration: '', networks: networkNamesOf(root) }];
  }
  if (file.type === 'vma') return [{ system: '', configuration: '', networks: networksOf(file.appliance) }];
  const { envelope } = file;
  return systemsOf(envelope).map(({ id, name }) => {
    const own = { system: id || name, ...(configuration === '' ? {} : { configuration }) };
    return { system: own.system, configuration, networks: networksOf(applianceOf(envelope, own)) };
  });
}
