/** A template and its thin clones: who they are, and what a template must not do while it has some. */
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { type DomainConfig, type DomainMetadata, parseDomain } from '../../domain-xml/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';

export interface Relative {
  domain: Domain;
  /** The persistent definition. */
  config: DomainConfig;
}

/** A domain that may be a template. */
export interface Template {
  uuid: string;
  name: string;
  metadata: DomainMetadata;
}

/** Clones named in one refusal; further ones are counted. */
const MAX_NAMED = 10;

/** The domain with its definition; null when there is none. @throws LibvirtError */
export function relativeOf(libvirt: Libvirt, id: string): Promise<Relative | null> {
  return unlessGone(async () => {
    const domain = await libvirt.domainByUuid(id);
    return { domain, config: parseDomain(await domain.xml(DomainXml.INACTIVE), domain.name) };
  }, null);
}

/**
 * As `relativeOf`, of one among many: null also when it cannot be read and its text does not name that template.
 * @param templateId null: whatever it names
 */
export async function readableRelative(
  libvirt: Libvirt,
  id: string,
  templateId: string | null,
): Promise<Relative | null> {
  try {
    return await relativeOf(libvirt, id);
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    if (templateId === null) return null;
    const text = await unlessGone(async () => (await libvirt.domainByUuid(id)).xml(DomainXml.INACTIVE), '');
    if (text.toLowerCase().includes(templateId.toLowerCase())) throw error;
    return null;
  }
}

/**
 * The domains of this node whose metadata name that template, by name.
 * @throws LibvirtError; VirtkeepError xml_invalid: one that may be such a clone cannot be read
 */
export async function thinClonesOf(libvirt: Libvirt, templateId: string): Promise<Relative[]> {
  const found: Relative[] = [];
  for (const { uuid } of await libvirt.domains()) {
    const relative = await readableRelative(libvirt, uuid, templateId);
    if (relative?.config.metadata.parent?.id === templateId) found.push(relative);
  }
  return found.sort((a, b) => (a.config.name < b.config.name ? -1 : 1));
}

/**
 * Refuses what the thin clones of this node forbid a template (specification 4.7); nothing when the domain never was one.
 * @param action completes "it cannot be …": "unmarked", "removed"
 * @throws VirtkeepError template_has_clones; LibvirtError
 */
export async function refuseWithClones(libvirt: Libvirt, template: Template, action: string): Promise<void> {
  if (!wasTemplate(template)) return;
  const names = (await thinClonesOf(libvirt, template.uuid)).map(({ config }) => config.name);
  if (names.length > 0) throw hasClones(template, named(names), action);
}

/** One that was unmarked keeps its version. */
export const wasTemplate = ({ metadata }: Template): boolean =>
  metadata.template || metadata.templateVersion > 0;

export const hasClones = ({ name }: Template, clones: string, action: string) =>
  new VirtkeepError('template_has_clones', { domain: name, clones, action });

function named(names: string[]): string {
  const more = names.length - MAX_NAMED;
  const text = names.slice(0, MAX_NAMED).join(', ');
  return more > 0 ? `${text} and ${more} more` : text;
}
