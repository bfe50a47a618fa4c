/**
 * Joins the answers of several nodes about the template of a thin clone's backup (specification 2.3, rule 3): each node knows only
 * its own VMs, and the configuration of a backup is shown for no node in particular. Pure.
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
 * The warnings of one node; those about the template are replaced by what all nodes answer. When some nodes have the template,
 * the warning names them. Else it says what is wrong with the template, or that no node has it, and which nodes gave no answer.
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

/** The warnings of a node that has a template with a fault; else the warning that no node has one. */
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
