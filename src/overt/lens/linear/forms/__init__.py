"""Linear token mixers as their papers write them: functions from a mixer's own quantities to a `Recurrence`."""
