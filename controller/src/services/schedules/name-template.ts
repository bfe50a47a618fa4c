/** Names of backups after a template; pure. A word in braces stands for what it names. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { ZoneTime } from '@virtkeep/shared/zone-time';

export const NAME_WORDS = ['vm', 'node', 'task', 'date', 'time', 'mode'] as const;
export type NameWord = (typeof NAME_WORDS)[number];

type Piece = { text: string } | { word: NameWord };

const WORD = /\{([a-z]*)\}/g;

/** @throws VirtkeepError invalid_field: a word that is none, a brace alone */
export function parseName(template: string): Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  for (const match of template.matchAll(WORD)) {
    const word = match[1] as NameWord;
    if (!NAME_WORDS.includes(word))
      throw bad(`has {${word}}, and knows only ${NAME_WORDS.map(one => `{${one}}`).join(', ')}`);
    pieces.push({ text: template.slice(from, match.index) }, { word });
    from = match.index + match[0].length;
  }
  pieces.push({ text: template.slice(from) });
  if (pieces.some(piece => 'text' in piece && /[{}]/.test(piece.text))) throw bad('has a brace alone');
  return pieces.filter(piece => !('text' in piece) || piece.text !== '');
}

const bad = (reason: string) => new VirtkeepError('invalid_field', { field: 'name_template', reason });

/**
 * The name of one backup; empty for an empty template.
 * @param due ms since 1970; its date and time are told as the zone's clocks show them
 */
export function nameOf(
  template: string,
  words: Record<Exclude<NameWord, 'date' | 'time'>, string>,
  { due, timeZone }: { due: number; timeZone: string },
): string {
  const { year, month, day, hour, minute } = new ZoneTime(timeZone).wallTime(due);
  const two = (value: number) => String(value).padStart(2, '0');
  const all = { ...words, date: `${year}-${two(month)}-${two(day)}`, time: `${two(hour)}-${two(minute)}` };
  return parseName(template)
    .map(piece => ('text' in piece ? piece.text : all[piece.word]))
    .join('');
}
