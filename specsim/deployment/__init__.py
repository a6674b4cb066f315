"""What a deployment costs: a target, its drafter, their cards, and how an engine runs them.

``drafters`` names where drafts come from, ``heads`` says what their runs read, ``deployment`` puts
them on cards, ``cost`` prices rounds and ``memory`` says how many requests fit.
"""
