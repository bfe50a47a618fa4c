/** Thin clones of a template on other nodes: what changes the template's disks must not happen below them either. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type ImageDependencies, reachableElsewhere } from '../../images/index.ts';
import type { Use } from '../../other-nodes.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import { hasClones, refuseWithClones, relativeOf, type Template, wasTemplate } from './family.ts';

/**
 * As `refuseWithClones`, with the thin clones of all nodes, for what changes the template's disks or lets them be changed: a clone
 * of it on another node reads the very same files. Where other nodes reach them a missing answer refuses, too; and so does a
 * copy of the template on another node, since of two that use a thing only one is told.
 * @throws VirtkeepError also image_in_use, image_use_unknown
 */
export async function refuseWithClonesAnywhere(
  dependencies: ImageDependencies,
  template: Template,
  action: string,
  signal: AbortSignal,
): Promise<void> {
  if (!wasTemplate(template)) return;
  const { uuid } = template;
  await refuseWithClones(dependencies.libvirt(), template, action);
  const [answer] = await dependencies.otherNodes.whoUses([{ kind: 'domain', id: uuid }], signal);
  if (!answer || answer.kind === 'unused') return;
  const onNode = ({ domainName, nodeName }: Use) => `${domainName} on the node ${nodeName}`;
  if (answer.kind === 'used' && answer.by.domainId !== uuid)
    throw hasClones(template, onNode(answer.by), action);
  const path = await reachableDisk(dependencies, uuid, signal);
  if (path === undefined) return;
  throw answer.kind === 'used'
    ? new VirtkeepError('image_in_use', { path, user: `the domain ${onNode(answer.by)}` })
    : new VirtkeepError('image_use_unknown', { path, reason: answer.reason });
}

/** A disk of the domain that other nodes can reach. */
async function reachableDisk(
  { libvirt, pools }: ImageDependencies,
  id: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const relative = await relativeOf(libvirt(), id);
  const disks = await resolveVolumes(libvirt(), relative?.config.disks ?? []);
  const paths = disks.flatMap(({ device, path }) => (device === 'disk' && path !== undefined ? [path] : []));
  return reachableElsewhere(paths, await pools(signal));
}
