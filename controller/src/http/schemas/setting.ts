import Type from 'typebox';
import { SETTING_NAMES } from '../../services/settings/settings.ts';
import { STORY } from '../document/story.ts';
import { described, nullable, oneOf, record, Time } from './common.ts';

export const SettingNameText = oneOf(SETTING_NAMES, {
  description: 'its place in the file of the controller',
});

export const SettingValueSchema = Type.Union([Type.Number(), Type.String()], {
  description: 'a number, or a time of day as text',
});

export const SettingSchema = record(
  'Setting',
  {
    description: 'A setting of the controller that may be changed while it runs',
    example: { name: 'schedules.per_node', value: 4, from_file: 8, modified: STORY.changed },
  },
  {
    name: SettingNameText,
    value: described(SettingValueSchema, 'what counts now'),
    from_file: described(SettingValueSchema, 'what the file of the controller says, or its default'),
    modified: nullable(described(Time, 'since when it is another one; null: it is that of the file')),
  },
);
