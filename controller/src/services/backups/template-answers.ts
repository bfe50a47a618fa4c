/**
 * What several nodes say of the template of a thin clone's backup (specification 2.3, rule 3): each knows its own VMs alone, and the
 * backup's configuration is shown for none of them in particular. Pure.
 */
import type { BackupWarning } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';

/** Each of them hinders a restore. */
const FAULTS = ['template_missing', 'template_incompatible', 'template_disk_mismatch'];

export interface TemplateAnswer {
  /** Name of the node. */
  node: string;
  /** Undefined: it could not be asked. */
  warnings: readonly BackupWarning[] | undefined;
}

/** The template is not there, or not as it was: another node may have the right one. */
export function lacksTemplate(warnings: readonly BackupWarning[]): boolean {
  return warnings.some(({ key }) => FAULTS.includes(key));
}

/**
 * The warnings of one node, with what all of them know of the template in place of its own: when some have it, which those
 * are; else what is wrong with the one there is, or that there is none, and who could not be asked.
 */
export function withTemplateOf(
  own: readonly BackupWarning[],
  others: readonly TemplateAnswer[],
): BackupWarning[] {
  const rest = own.filter(({ key }) => !FAULTS.includes(key));
  const answers = others.filter(({ warnings }) => warnings !== undefined);
  const having = answers.filter(({ warnings }) => !lacksTemplate(warnings!)).map(({ node }) => node);
  if (having.length > 0) {
    const text = `The template is on ${having.join(', ')}; restore the thin clone there.`;
    return [...rest, { key: 'template_elsewhere', text }];
  }
  const silent = others.filter(({ warnings }) => warnings === undefined).map(({ node }) => node);
  const unasked =
    silent.length === 0 ? '' : ` Not asked, since they are not reachable: ${silent.join(', ')}.`;
  return [...rest, ...faultsOf([own, ...answers.map(({ warnings }) => warnings!)], others.length)].map(
    warning => (FAULTS.includes(warning.key) ? { ...warning, text: warning.text + unasked } : warning),
  );
}

/** Those of a node that has a template, whatever is wrong with it; else that none has it. */
function faultsOf(answers: readonly (readonly BackupWarning[])[], others: number): BackupWarning[] {
  const faults = answers.map(warnings => warnings.filter(({ key }) => FAULTS.includes(key)));
  const found = faults.find(some => some.every(({ key }) => key !== 'template_missing')) ?? faults[0]!;
  return found.map(({ key, text }) => ({
    key,
    text:
      key === 'template_missing' && others > 0
        ? text.replace('is not on this node', 'is on no node that has the data pool')
        : text,
  }));
}
