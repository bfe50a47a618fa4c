/**
 * The mark of a saved state that an increment made, in the state's description: which archive it belongs to, and as
 * which of its states. It goes wherever the state goes; whoever edits the description away makes it a state like others.
 */
export interface IncrementTag {
  /** Id of the archive. */
  backupId: string;
  /** Number of the state in the archive. */
  state: number;
}

const LINE =
  /^virtkeep backup=([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}) state=(\d{1,9})$/m;

/** The line for the description. */
export const incrementTag = (backupId: string, state: number): string =>
  `virtkeep backup=${backupId} state=${state}`;

/** The mark inside a description; null for a state that was made by hand. */
export function parseIncrementTag(description: string): IncrementTag | null {
  const found = LINE.exec(description);
  return found && { backupId: found[1]!, state: Number(found[2]) };
}

/** One that a user made. States of increments go away without harm: merging them changes no layer above an archive's last state. */
export function isUserState(snapshot: { description: string | null }): boolean {
  return parseIncrementTag(snapshot.description ?? '') === null;
}
