/**
 * Subject and text of a message: logic-less templates over the data of its event. A template names fields and repeats or leaves out
 * parts; it calls nothing and includes nothing. What it may name is known, so a wrong name is refused when the template is set and not
 * found missing in a mail at night. Pure.
 */
import { hostname } from 'node:os';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import Mustache from 'mustache';
import { DEFAULT_TEMPLATES } from './default-templates.ts';
import { type AnyEventName, EVENT_DATA } from './events.ts';
import { DERIVED_FIELDS, textView } from './text-view.ts';

export interface Template {
  subject: string;
  text: string;
}

/** A target's own templates; what is not there is the default. */
export type Templates = { [E in AnyEventName]?: Partial<Template> };

export interface Message {
  /** One line. */
  subject: string;
  text: string;
}

/** What a message is made of. */
export interface MessageSource {
  event: AnyEventName;
  data: object;
  /** When the event was raised, RFC 3339. */
  created: string;
  /** By which people know this controller. */
  controller: string;
}

export const MAX_SUBJECT_TEMPLATE = 500;
export const MAX_TEXT_TEMPLATE = 8_192;
const MAX_SUBJECT = 200;
const MAX_TEXT = 262_144;
/** Of sections within sections: the lists of the data are not deeper. */
const MAX_DEPTH = 4;

/** A part of a parsed template: its sign, what it names, and for a section what is inside. */
type Token = [sign: string, name: string, start: number, end: number, inner?: Token[]];

const COMMON_FIELDS = ['event', 'created', 'controller'];

/**
 * Checks a template for an event.
 * @param field by which the request names it
 * @throws invalid_field with what is wrong with it
 */
export function checkTemplate(event: AnyEventName, template: string, field: string): void {
  const refuse = (reason: string) => new VirtkeepError('invalid_field', { field, reason });
  const fields = fieldsOf(event);
  const check = (tokens: readonly Token[], around: readonly string[]): void => {
    for (const [sign, name, , , inner] of tokens) {
      if (sign === 'text' || sign === '!') continue;
      if (!['name', '&', '#', '^'].includes(sign))
        throw refuse('includes another template or sets other tags');
      const isSection = sign === '#' || sign === '^';
      const unknown = name.split('.').find((part, index, all) => {
        const isWhole = index === all.length - 1 && !isSection;
        return isWhole ? fields.get(part) !== 'text' : !fields.has(part);
      });
      if (unknown !== undefined)
        throw refuse(`names "${unknown}"; known are ${[...fields.keys()].sort().join(', ')}`);
      if (inner === undefined) continue;
      if (around.includes(name) || around.length === MAX_DEPTH)
        throw refuse(`repeats "${name}" too deep inside of others`);
      check(inner, [...around, name]);
    }
  };
  check(parse(template, refuse), []);
}

function parse(template: string, refuse: (reason: string) => VirtkeepError): Token[] {
  try {
    return writer().parse(template) as Token[];
  } catch (error) {
    throw refuse(`is no template: ${(error as Error).message}`);
  }
}

/** Subject and text for an event. @param own templates of the target */
export function render(source: MessageSource, own: Templates = {}): Message {
  const template = { ...DEFAULT_TEMPLATES[source.event], ...own[source.event] };
  const { event, created, controller } = source;
  const view = textView({ event, created, controller, ...source.data });
  return {
    subject: oneLine(fill(template.subject, view)),
    text: cut(fill(template.text, view), MAX_TEXT),
  };
}

/** How this controller calls itself where nobody gave it an address. */
export const ownName = (publicUrl: string | undefined): string => publicUrl ?? hostname();

function fill(template: string, view: object): string {
  // it is no HTML, so nothing is escaped
  return writer().render(template, view, undefined, { escape: value => String(value) });
}

/** Without a cache: templates that somebody tried would stay in memory. */
function writer(): InstanceType<typeof Mustache.Writer> {
  const one = new Mustache.Writer();
  (one as { templateCache?: unknown }).templateCache = undefined;
  return one;
}

/** A header: nothing in it may end its line, whatever a VM is called. */
function oneLine(text: string): string {
  return cut(withoutHidden(text).replaceAll(/\s+/g, ' ').trim(), MAX_SUBJECT);
}

function cut(text: string, maxCharacters: number): string {
  return text.length <= maxCharacters ? text : `${text.slice(0, maxCharacters - 1).toWellFormed()}…`;
}

/** Everything that a template for this event may name; what has fields itself can only be a section, or come before a dot. */
function fieldsOf(event: AnyEventName): Map<string, 'text' | 'section'> {
  const texts = [...COMMON_FIELDS, ...DERIVED_FIELDS].map(name => [name, 'text'] as const);
  return new Map([...texts, ...fieldsIn(EVENT_DATA[event] as Schema)]);
}

interface Schema {
  properties?: Readonly<Record<string, Schema>>;
  items?: Schema;
}

function fieldsIn({ properties = {}, items }: Schema): (readonly [string, 'text' | 'section'])[] {
  return [
    ...Object.entries(properties).flatMap(([name, schema]) => [
      [name, schema.properties || schema.items ? 'section' : 'text'] as const,
      ...fieldsIn(schema),
    ]),
    ...(items ? fieldsIn(items) : []),
  ];
}
