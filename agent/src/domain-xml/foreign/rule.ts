/**
 * What a table of allowed XML is made of. Names are those of libvirt's own format; what a table does not name is left out, of archives that
 * the node does not vouch for (`strict` of the gate). A name says how often its element may stand beside its like: `disk*` as often as it likes;
 * `source!` once, whoever made the archive; `serial` once in strict archives, and as it stands in the node's own.
 */
import type { Element } from '@xmldom/xmldom';
import type { XmlGate } from './sanitize.ts';

export interface Rule {
  attributes: ReadonlyMap<string, AttributeRule>;
  children: ReadonlyMap<string, Rule>;
  /** `*`: may stand several times beside its like. Of any other the first that is kept stays alone, in strict archives. */
  many: boolean;
  /** `!`: so it is in archives of the node, too, since libvirt takes another one than we do when there are several. */
  once?: true;
  /** What libvirt tells of a running domain, and a definition does not need: left out without a word. */
  isRuntime?: true;
  /** Allowed text: any, none, or one of these. */
  text: boolean | readonly string[];
  /** Own elements of virtkeep and of others live in namespaces: this element's content is not the table's. */
  namespaces?: readonly string[];
  /** Judges, or changes, what no table can tell. */
  judge?: Judge;
  /** As `judge`, for archives that the node vouches for, too. */
  always?: Judge;
}

export interface AttributeRule {
  /** With any other value the whole element is left out; null: any. */
  values: readonly string[] | null;
  /** May begin with a slash: what it names is judged, or is no file of the node. */
  isPath: boolean;
}

/** @returns `false`: the element goes; names of its parts that went. */
export type Judge = (element: Element, gate: XmlGate) => boolean | readonly string[];

type Children = Record<string, Rule>;

/**
 * An element with attributes, and with children by their names, each with its `*` or `!` (above).
 * @param attributes separated by blanks; `mode=a|b` allows these values, `file/` a path
 */
export function el(attributes = '', children: Children = {}, judge?: Judge): Rule {
  const entries = Object.entries(children).map(([name, rule]): [string, Rule] =>
    isMarked(name) ? [name.slice(0, -1), marked(name, rule)] : [name, rule],
  );
  return {
    attributes: attributesOf(attributes),
    children: new Map(entries),
    many: false,
    text: false,
    ...(judge ? { judge } : {}),
  };
}

const isMarked = (name: string): boolean => name.endsWith('*') || name.endsWith('!');
const marked = (name: string, rule: Rule): Rule =>
  name.endsWith('*') ? { ...rule, many: true } : { ...rule, once: true };

/** An element with text: any, or one of some words. */
export function text(attributes = '', ...words: string[]): Rule {
  return { ...el(attributes), text: words.length > 0 ? words : true };
}

/** What libvirt finds again by itself. */
export const RUNTIME: Rule = { ...el(), many: true, isRuntime: true };

/** The same rule for elements of several names. */
export function each(names: string, rule: Rule): Children {
  return Object.fromEntries(names.split(' ').map(name => [name, rule]));
}

function attributesOf(list: string): Rule['attributes'] {
  return new Map(
    list
      .split(/\s+/)
      .filter(item => item !== '')
      .map(item => {
        const [name, values] = item.split('=') as [string, string?];
        const isPath = name.endsWith('/');
        return [isPath ? name.slice(0, -1) : name, { values: values?.split('|') ?? null, isPath }];
      }),
  );
}
