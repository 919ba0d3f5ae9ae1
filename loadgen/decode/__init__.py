"""From what a transport left of a request to what it says: pure, after the stream's end. `record` is the way in."""
